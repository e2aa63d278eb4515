//! The arrays of one call, checked and ready to run: what the engine gets.
//!
//! ```text
//! let mut operands = Operands::of_node(...)?;     reads, checks, makes room for packed copies of strided arrays
//! operands.gather(py);                            fills them
//! engine.run(operands.buffers(...));
//! operands.write_back(py);                        only if the run succeeded
//! ```
//!
//! A call is *in place* if it has no `out`, or if `out` is on every rank exactly the memory of its input: then each array is
//! read and written. Otherwise inputs are read, `out` is written, and what is written shares no byte with anything else.
//! After a run that failed, strided arrays are as they were; packed ones that the call writes hold no specified values.

use pyo3::prelude::*;

use nvcoll_core::dtype::DType;
use nvcoll_core::schedule::Aliasing;
use nvcoll_engine::strided::{first_conflict, Conflict, Range, Tries};
use nvcoll_engine::Buffers;

use super::array::Array;
use super::ranks::Ranks;
use crate::error::invalid;

/// The arrays of one call.
pub(crate) struct Operands {
    input: Ranks,
    /// None in place.
    output: Option<Ranks>,
}

// SAFETY: the addresses are followed only in `gather` and `write_back`, which hold `&mut self`, and by the engine under the
// rules of its calls. The owners are only dropped, with the interpreter attached.
unsafe impl Send for Operands {}

impl Operands {
    /// Reads `arrays` and `out` of a call that speaks for all ranks.
    ///
    /// # Errors
    /// An array that cannot be used or does not fit the others; the message names argument and rank.
    pub(crate) fn of_node(
        collective: &str,
        arrays: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        world_size: u32,
    ) -> PyResult<Self> {
        let input = Ranks::of_node("arrays", arrays, world_size)?;
        let output = out.filter(|out| !out.is(arrays)).map(|out| Ranks::of_node("out", out, world_size)).transpose()?;
        Self::new(arrays.py(), collective, input, output)
    }

    /// Reads `x` and `out` of one rank's own call. What other ranks pass is compared where they meet.
    ///
    /// # Errors
    /// As [`Operands::of_node`].
    pub(crate) fn of_rank(
        collective: &str,
        x: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        rank: u32,
    ) -> PyResult<Self> {
        let input = Ranks::of_rank("x", x, rank)?;
        let output = out.filter(|out| !out.is(x)).map(|out| Ranks::of_rank("out", out, rank)).transpose()?;
        Self::new(x.py(), collective, input, output)
    }

    fn new(py: Python<'_>, collective: &str, input: Ranks, output: Option<Ranks>) -> PyResult<Self> {
        let mut operands = Self { input, output };
        operands.check_alike(py, collective)?;
        operands.check_aliasing(py)?;
        let mut tries = Tries::of_a_call();
        operands.check_writable(py, &mut tries)?;
        operands.check_apart(py, &mut tries)?;
        operands.input.make_copies(py)?;
        operands.output.iter_mut().try_for_each(|output| output.make_copies(py))?;
        Ok(operands)
    }

    /// Returns the dtype of every array.
    pub(crate) fn dtype(&self) -> DType {
        self.input.arrays[0].dtype
    }

    /// Returns the number of elements of every array.
    pub(crate) fn count(&self) -> usize {
        self.input.arrays[0].layout.count()
    }

    /// Whether the arrays that are read are the ones that are written.
    pub(crate) fn aliasing(&self) -> Aliasing {
        if self.output.is_none() {
            Aliasing::InPlace
        } else {
            Aliasing::Disjoint
        }
    }

    /// Whether the engine sees some array through a packed copy.
    pub(crate) fn is_strided(&self) -> bool {
        self.all().any(Array::has_copy)
    }

    /// Returns where the engine finds what each rank brings; `scalar(i)` is that of the i-th.
    pub(crate) fn buffers(&self, scalar: impl Fn(usize) -> f64) -> Vec<Buffers> {
        let pairs = self.input.arrays.iter().zip(&self.written().arrays).enumerate();
        pairs.map(|(at, (input, output))| Buffers::new(input.start(), output.start(), scalar(at))).collect()
    }

    /// Fills the packed copies of strided arrays that are read.
    pub(crate) fn gather(&mut self, py: Python<'_>) {
        // SAFETY: the owners are here.
        self.detached(py, |operands| operands.input.arrays.iter().for_each(|array| unsafe { array.gather() }));
    }

    /// Writes the packed copies back to the strided arrays that are written.
    pub(crate) fn write_back(&mut self, py: Python<'_>) {
        // SAFETY: the owners are here, and `check_writable` was true before `new` returned.
        self.detached(py, |operands| operands.written().arrays.iter().for_each(|array| unsafe { array.write_back() }));
    }

    /// Does something with the copies without the interpreter, if there are any.
    fn detached(&mut self, py: Python<'_>, work: impl FnOnce(&mut Self) + Send) {
        if self.is_strided() {
            let operands = self;
            py.detach(|| work(operands));
        }
    }

    fn all(&self) -> impl Iterator<Item = &Array> {
        self.input.arrays.iter().chain(self.output.iter().flat_map(|output| &output.arrays))
    }

    fn written(&self) -> &Ranks {
        self.output.as_ref().unwrap_or(&self.input)
    }

    fn is_written(&self, number: usize) -> bool {
        self.output.is_none() || number >= self.input.arrays.len()
    }

    /// Returns how messages call array `number`.
    fn label(&self, number: usize) -> String {
        match number.checked_sub(self.input.arrays.len()) {
            None => self.input.label(number),
            Some(rank) => self.written().label(rank),
        }
    }

    /// Refuses arrays that differ in dtype or count.
    fn check_alike(&self, py: Python<'_>, collective: &str) -> PyResult<()> {
        let (dtype, count) = (self.dtype(), self.count());
        for (number, array) in self.all().enumerate() {
            let (label, like) = (|| self.label(number), || self.label(0));
            if array.dtype != dtype {
                let (label, like, found) = (label(), like(), array.dtype);
                let message =
                    format!("{label} is {found}, {collective} needs {dtype} (as {like}): pass {dtype} everywhere");
                return Err(invalid(py, message));
            }
            let found = array.layout.count();
            if found != count {
                let (label, like) = (label(), like());
                let message = format!(
                    "{label} holds {found} elements, {collective} needs {count} (as {like}): pass an array of {count}"
                );
                return Err(invalid(py, message));
            }
        }
        Ok(())
    }

    /// Recognises outputs that are the inputs, which are in place, and refuses a mixture.
    fn check_aliasing(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(output) = &self.output else { return Ok(()) };
        // Arrays without elements may lie at one address and are not in place for it.
        let is_same = |(a, b): (&Array, &Array)| a.layout.count() > 0 && a.is_same_memory(b);
        let pairs = || self.input.arrays.iter().zip(&output.arrays);
        let Some(shared) = pairs().position(is_same) else { return Ok(()) };
        if let Some(apart) = pairs().position(|pair| !is_same(pair)) {
            let (shared, apart, input) = (output.label(shared), output.label(apart), self.input.argument);
            return Err(invalid(
                py,
                format!(
                    "{shared} is its input, and {apart} is not: pass outputs apart from `{input}` everywhere, or none"
                ),
            ));
        }
        // `out` is the one that has to be writable.
        if let Some(output) = self.output.take() {
            self.input = output;
        }
        Ok(())
    }

    /// Refuses written arrays that must not be, or whose elements share memory.
    fn check_writable(&self, py: Python<'_>, tries: &mut Tries) -> PyResult<()> {
        let written = self.written();
        for (at, array) in written.arrays.iter().enumerate() {
            array.require_writable(tries).map_err(|reason| reason.about(py, written.label(at)))?;
        }
        Ok(())
    }

    /// Refuses arrays that share a byte where one of them is written.
    fn check_apart(&self, py: Python<'_>, tries: &mut Tries) -> PyResult<()> {
        let mut ranges: Vec<Range<'_>> = Vec::with_capacity(2 * self.input.arrays.len());
        ranges.extend(
            self.all()
                .enumerate()
                .map(|(number, array)| Range::new(array.first.addr(), &array.layout, self.is_written(number), number)),
        );
        let message = match first_conflict(&mut ranges, tries) {
            None => return Ok(()),
            Some(Conflict::Shared(a, b)) => {
                let (a, b) = (self.label(a), self.label(b));
                format!("{a} and {b} overlap, and one is written: pass arrays that share no byte")
            }
            Some(Conflict::Undecided(a, b)) => {
                let (a, b) = (self.label(a), self.label(b));
                format!(
                    "{a} and {b} interleave, one is written, and finding out whether they share a byte takes too long for \
                     their strides: pass packed arrays"
                )
            }
        };
        Err(invalid(py, message))
    }
}
