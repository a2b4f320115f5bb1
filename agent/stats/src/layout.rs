//! Walks the memory of a tensor with any strides as blocks of contiguous elements.
//!
//! A layout is normalised first. Sizes of 1 vanish, dimensions of stride 0 become a multiplicity (an expanded element is
//! read once), and the other dimensions are sorted by stride and merged where they adjoin. Long contiguous runs are then
//! passed on in place; short or strided ones are packed into a block buffer on the stack.
#![expect(unsafe_code, reason = "reads the memory that a view guarantees")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use trainmon_core::{MAX_DIMS, TensorView};

/// The bytes of one block: two operands fit the level-1 cache, and a block's fixed cost stays small.
const BLOCK_BYTES: usize = 16 << 10;

/// The most elements of one block, and the size of per-dtype work buffers.
pub(crate) const BLOCK_ELEMENTS: usize = 4096;

/// The number of contiguous elements from which a run is not packed.
const LONG_RUN: usize = 512;

const CACHE_LINE: usize = 64;

/// The prefetch distance in bytes: at least what arrives during one memory latency (about 100 ns at 40 GB/s).
/// The processor's own prefetching stops at page ends.
pub(crate) const AHEAD: usize = 4096;

/// Prefetches a cache line. Any address is allowed: it is only a hint.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault; every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Types for which any initialised bytes are a valid value.
///
/// # Safety
/// No padding, no invalid bit patterns.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($name:ty),*) => {$(
        // SAFETY: every bit pattern of a plain number (or a pair of them) is a value.
        unsafe impl Plain for $name {}
    )*};
}
plain!(f64, f32, i8, i16, i32, i64, u8, u16, u32, u64, [f32; 2], [f64; 2]);

/// The order in which elements are visited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Memory order; each repeated element once.
    Memory,
    /// Index order of the shape; repeated elements every time.
    Logical,
}

/// The memory of `N` tensors of one shape, prepared for a joint walk.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a, const N: usize> {
    data: [*const u8; N],
    sizes: [usize; N],
    rank: usize,
    /// Innermost first.
    dims: [usize; MAX_DIMS],
    /// In elements, per dimension and operand.
    strides: [[usize; N]; MAX_DIMS],
    elements: usize,
    multiplicity: usize,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a view's memory is readable and not written for 'a, from any thread.
unsafe impl<const N: usize> Sync for Source<'_, N> {}

/// A number of contiguous elements of each operand.
pub(crate) struct Block<'b, const N: usize> {
    data: [*const u8; N],
    sizes: [usize; N],
    len: usize,
    memory: PhantomData<&'b [u8]>,
}

impl<'b, const N: usize> Block<'b, N> {
    /// Returns the elements of one operand.
    ///
    /// # Panics
    /// The size of `T` is not that of the operand's dtype.
    #[inline]
    pub(crate) fn elements<T: Plain>(&self, operand: usize) -> &'b [T] {
        assert_eq!(size_of::<T>(), self.sizes[operand], "element type and dtype agree");
        // SAFETY: `len` elements of this size are readable; a view's address and the buffer are aligned for the dtype;
        // any bytes are a valid `T`.
        unsafe { std::slice::from_raw_parts(self.data[operand].cast::<T>(), self.len) }
    }

    /// Prefetches the memory [`AHEAD`] bytes after these elements of one operand: the processor does not prefetch well if
    /// two blocks are walked together. Beyond a run's end the hint has no effect.
    #[inline]
    pub(crate) fn ask_ahead(&self, operand: usize, start: usize, len: usize) {
        let size = self.sizes[operand];
        for line in (start * size..(start + len) * size).step_by(CACHE_LINE) {
            prefetch(self.data[operand].wrapping_add(line + AHEAD));
        }
    }

    /// Returns the number of elements of each operand.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of one operand.
    #[inline]
    pub(crate) fn bytes(&self, operand: usize) -> &'b [u8] {
        // SAFETY: as in `elements`.
        unsafe { std::slice::from_raw_parts(self.data[operand], self.len * self.sizes[operand]) }
    }
}

impl<'a, const N: usize> Source<'a, N> {
    /// Prepares tensors of equal shape for a walk.
    pub(crate) fn new(views: [&TensorView<'a>; N], order: Order) -> Self {
        let elements = views[0].elements();
        if elements == 0 || views.iter().all(|view| view.is_contiguous()) {
            // Built in place: filling it first and then moving it would add a tenth to the time of a small tensor.
            return Self {
                data: views.map(TensorView::data),
                sizes: views.map(|view| view.dtype().size()),
                rank: usize::from(elements > 0),
                dims: std::array::from_fn(|dim| if dim == 0 { elements } else { 1 }),
                strides: std::array::from_fn(|dim| [usize::from(dim == 0); N]),
                elements,
                multiplicity: 1,
                memory: PhantomData,
            };
        }
        Self::strided(views, order)
    }

    #[inline(never)]
    fn strided(views: [&TensorView<'a>; N], order: Order) -> Self {
        let mut source = Self {
            data: views.map(TensorView::data),
            sizes: views.map(|view| view.dtype().size()),
            rank: 0,
            dims: [1; MAX_DIMS],
            strides: [[0; N]; MAX_DIMS],
            elements: views[0].elements(),
            multiplicity: 1,
            memory: PhantomData,
        };
        let shape = views[0].shape();
        for axis in (0..shape.dims().len()).rev() {
            let size = shape.dims()[axis] as usize;
            let strides = views.map(|view| view.strides()[axis] as usize);
            if size == 1 {
                continue;
            }
            if order == Order::Memory && strides == [0; N] {
                source.multiplicity *= size;
                source.elements /= size;
            } else {
                source.push(size, strides);
            }
        }
        if order == Order::Memory {
            source.sort_by_stride();
        }
        source.merge_neighbours();
        source
    }

    fn push(&mut self, size: usize, strides: [usize; N]) {
        self.dims[self.rank] = size;
        self.strides[self.rank] = strides;
        self.rank += 1;
    }

    fn sort_by_stride(&mut self) {
        // Insertion sort: there are few dimensions, and usually they are nearly sorted.
        let key = |strides: [usize; N]| strides.iter().sum::<usize>();
        for end in 1..self.rank {
            let mut at = end;
            while at > 0 && key(self.strides[at - 1]) > key(self.strides[at]) {
                self.strides.swap(at - 1, at);
                self.dims.swap(at - 1, at);
                at -= 1;
            }
        }
    }

    fn merge_neighbours(&mut self) {
        let rank = std::mem::take(&mut self.rank);
        for at in 0..rank {
            let (size, strides) = (self.dims[at], self.strides[at]);
            match self.rank.checked_sub(1) {
                Some(inner) if self.strides[inner].map(|stride| stride * self.dims[inner]) == strides => {
                    self.dims[inner] *= size;
                }
                _ => self.push(size, strides),
            }
        }
    }

    /// Returns the number of elements to visit.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }

    /// Returns how often each visited element occurs in the tensor.
    pub(crate) fn multiplicity(&self) -> u64 {
        self.multiplicity as u64
    }

    /// Passes the elements numbered by `range` to `sink`, in order, block by block.
    pub(crate) fn for_each_block(&self, range: Range<usize>, sink: &mut dyn FnMut(&Block<'_, N>)) {
        assert!(range.end <= self.elements, "a range inside the tensor");
        let block_len = BLOCK_ELEMENTS.min(BLOCK_BYTES / self.sizes.iter().copied().max().unwrap_or(1));
        let is_joined = self.rank == 0 || self.strides[0] == [1; N];
        if is_joined && self.rank <= 1 {
            // Most tensors are one run: small ones need not pay for a cursor.
            let start =
                std::array::from_fn(|operand| self.data[operand].wrapping_add(range.start * self.sizes[operand]));
            self.walk_run(start, range.len(), block_len, sink);
        } else if is_joined && self.dims[0] >= LONG_RUN {
            self.walk_runs(range, block_len, sink);
        } else {
            self.pack(range, block_len, sink);
        }
    }

    /// Walks long contiguous runs in place.
    #[inline(never)]
    fn walk_runs(&self, range: Range<usize>, block_len: usize, sink: &mut dyn FnMut(&Block<'_, N>)) {
        let mut cursor = Cursor::at(self, range.start);
        let mut left = range.len();
        while left > 0 {
            let run = left.min(cursor.run_left());
            self.walk_run(cursor.address(), run, block_len, sink);
            cursor.advance(run);
            left -= run;
        }
    }

    /// Walks one run from these addresses on.
    #[inline]
    fn walk_run(&self, mut data: [*const u8; N], run: usize, block_len: usize, sink: &mut dyn FnMut(&Block<'_, N>)) {
        let mut left = run;
        while left > 0 {
            let len = left.min(block_len);
            sink(&Block { data, sizes: self.sizes, len, memory: PhantomData });
            left -= len;
            for (address, size) in data.iter_mut().zip(self.sizes) {
                *address = address.wrapping_add(len * size);
            }
        }
    }

    /// Copies short or strided runs into a buffer and passes it on.
    #[inline(never)]
    fn pack(&self, range: Range<usize>, block_len: usize, sink: &mut dyn FnMut(&Block<'_, N>)) {
        let mut buffers = [const { MaybeUninit::<Buffer>::uninit() }; N];
        let buffer_at = buffers.each_mut().map(|buffer| buffer.as_mut_ptr().cast::<u8>());
        let mut cursor = Cursor::at(self, range.start);
        let mut left = range.len();
        while left > 0 {
            let len = left.min(block_len);
            let mut filled = 0;
            while filled < len {
                let run = (len - filled).min(cursor.run_left());
                for (operand, &from) in cursor.address().iter().enumerate() {
                    let size = self.sizes[operand];
                    // SAFETY: the layout has `run` elements from here; `filled + run` elements fit the buffer.
                    unsafe {
                        copy_run(from, buffer_at[operand].add(filled * size), run, self.strides[0][operand], size);
                    }
                }
                cursor.advance(run);
                filled += run;
            }
            let data = buffer_at.map(<*mut u8>::cast_const);
            sink(&Block { data, sizes: self.sizes, len, memory: PhantomData });
            left -= len;
        }
    }
}

#[repr(C, align(64))]
struct Buffer([u8; BLOCK_BYTES]);

/// A position in the walk.
struct Cursor<'s, 'a, const N: usize> {
    source: &'s Source<'a, N>,
    at: [usize; MAX_DIMS],
    /// In elements, per operand.
    offset: [usize; N],
}

impl<'s, 'a, const N: usize> Cursor<'s, 'a, N> {
    fn at(source: &'s Source<'a, N>, index: usize) -> Self {
        let mut cursor = Self { source, at: [0; MAX_DIMS], offset: [0; N] };
        if index == 0 {
            return cursor;
        }
        let mut rest = index;
        for dim in 0..source.rank {
            cursor.at[dim] = rest % source.dims[dim];
            rest /= source.dims[dim];
            for operand in 0..N {
                cursor.offset[operand] += cursor.at[dim] * source.strides[dim][operand];
            }
        }
        cursor
    }

    /// Returns the number of remaining elements in the innermost dimension.
    fn run_left(&self) -> usize {
        self.source.dims[0] - self.at[0]
    }

    fn address(&self) -> [*const u8; N] {
        std::array::from_fn(|operand| {
            self.source.data[operand].wrapping_add(self.offset[operand] * self.source.sizes[operand])
        })
    }

    /// Advances by `run` elements, at most to the end of the innermost dimension, and carries.
    fn advance(&mut self, run: usize) {
        let mut step = run;
        for dim in 0..self.source.rank.max(1) {
            self.at[dim] += step;
            for operand in 0..N {
                self.offset[operand] += step * self.source.strides[dim][operand];
            }
            if self.at[dim] < self.source.dims[dim] {
                return;
            }
            self.at[dim] = 0;
            for operand in 0..N {
                self.offset[operand] -= self.source.dims[dim] * self.source.strides[dim][operand];
            }
            step = 1;
        }
    }
}

/// Copies `run` elements of `size` bytes with a distance of `stride` elements.
///
/// # Safety
/// All of them must be readable and `run * size` bytes writable at `to`. Both addresses must be aligned for a number of
/// this size (of half the size for pairs).
unsafe fn copy_run(from: *const u8, to: *mut u8, run: usize, stride: usize, size: usize) {
    // SAFETY: guaranteed by the caller; each branch reads and writes exactly the elements named above.
    unsafe {
        match size {
            _ if stride == 1 => std::ptr::copy_nonoverlapping(from, to, run * size),
            1 => gather::<u8>(from, to, run, stride),
            2 => gather::<u16>(from, to, run, stride),
            4 => gather::<u32>(from, to, run, stride),
            8 => gather::<[u32; 2]>(from, to, run, stride),
            _ => gather::<[u64; 2]>(from, to, run, stride),
        }
    }
}

/// # Safety
/// As [`copy_run`].
unsafe fn gather<T: Copy>(from: *const u8, to: *mut u8, run: usize, stride: usize) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for index in 0..run {
        // SAFETY: guaranteed by the caller.
        unsafe { to.add(index).write(from.add(index * stride).read()) };
    }
}
