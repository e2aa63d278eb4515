//! A kernel, and the arguments of one run.

/// The arguments of one run of a kernel. Pointers may have any alignment.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// The sources.
    pub src: *const *const u8,
    /// The number of sources, at least 1.
    pub n_src: usize,
    /// The destinations.
    pub dst: *const *mut u8,
    /// The number of destinations, at least 1.
    pub n_dst: usize,
    /// The number of elements of each source and destination.
    pub count: usize,
    /// One scalar per source for [`Arm::SumScaled`](super::Arm); 1 for a source that is not a contribution.
    pub scalars: *const f64,
    /// The divisor of [`Arm::SumDivided`](super::Arm).
    pub divisor: u32,
    /// The number of destinations that get ordinary stores; the later ones get non-temporal stores.
    pub plain: usize,
    /// Whether the sources are too long for a near cache, so that prefetching pays.
    pub is_far: bool,
}

/// An instance of the routine; the number is its count of elements.
pub(super) type KernelFunction = unsafe fn(&Args, usize);

/// A kernel for one dtype, arm and instruction set.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub(super) run: KernelFunction,
    /// Kernel elements per caller element (2 for complex sums).
    pub(super) times: u8,
}

impl PartialEq for Kernel {
    /// Says whether both certainly compute the same; equal kernels may differ in address.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.run, other.run) && self.times == other.times
    }
}

impl Kernel {
    /// Sets the number of kernel elements per caller element.
    pub(super) fn times(self, times: usize) -> Kernel {
        Kernel { times: times as u8, ..self }
    }

    /// Folds the sources into every destination.
    ///
    /// # Safety
    /// `args` names `n_src` sources and `n_dst` destinations of `count` elements each, valid for reads and writes while
    /// no other thread writes the sources or touches the destinations. A destination is exactly a source or disjoint from
    /// all of them; destinations are disjoint. `scalars` has `n_src` values if the arm scales. The instruction set is
    /// available.
    #[inline]
    pub unsafe fn run(&self, args: &Args) {
        // SAFETY: the function was selected for an instruction set that `Isa::check` found, and demands what this one does.
        unsafe { (self.run)(args, args.count * usize::from(self.times)) }
    }
}
