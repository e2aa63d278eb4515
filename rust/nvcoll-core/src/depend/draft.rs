//! The steps of a program before their queues and waits are derived.

/// A step before its queue and its waits are derived. Its sources and destinations are views, or the regions that an author names.
#[derive(Debug, Clone)]
pub(crate) struct Draft<V> {
    pub(crate) rank: u32,
    pub(crate) channel: u32,
    pub(crate) src: Vec<V>,
    pub(crate) dst: Vec<V>,
    pub(crate) at_switch: bool,
}

impl<V> Draft<V> {
    /// Returns the step with other sources and destinations.
    pub(crate) fn map<W>(&self, other: impl Fn(&V) -> W) -> Draft<W> {
        let (src, dst) = (self.src.iter().map(&other).collect(), self.dst.iter().map(&other).collect());
        Draft { rank: self.rank, channel: self.channel, src, dst, at_switch: self.at_switch }
    }
}
