//! Memory that kernels like: aligned to a cache line, grown and never shrunk.

use crate::rows::{Element, Rows, RowsMut};

/// A growable array aligned to 64 bytes.
pub struct Aligned<T> {
    lines: Vec<Line>,
    len: usize,
    _element: std::marker::PhantomData<T>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Types for which every bit pattern is a value, so that zeroed or reused bytes are sound.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for u8 {}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Aligned { lines: Vec::new(), len: 0, _element: std::marker::PhantomData }
    }
}

#[allow(private_bounds)]
impl<T: Plain> Aligned<T> {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut new = Self::default();
        new.ensure(len);
        new
    }

    /// Grows to at least `len` elements; keeps what is there, new elements are zero.
    pub fn ensure(&mut self, len: usize) {
        let lines = (len * size_of::<T>()).div_ceil(64);
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; 64]));
        }
        self.len = self.len.max(len);
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `lines` holds at least `len` elements' bytes, is aligned to 64 >= align_of::<T>(),
        // is fully initialised, and every bit pattern of a `Plain` type is valid.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    /// The elements, to write.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// A growable matrix buffer of f32 or bf16.
pub enum Buffer {
    /// 32-bit floats.
    F32(Aligned<f32>),
    /// bfloat16, as bits.
    Bf16(Aligned<u16>),
}

impl Buffer {
    /// An empty buffer of this element.
    pub fn new(element: Element) -> Self {
        match element {
            Element::F32 => Buffer::F32(Aligned::default()),
            Element::Bf16 => Buffer::Bf16(Aligned::default()),
        }
    }

    /// Grows to at least `len` elements.
    pub fn ensure(&mut self, len: usize) {
        match self {
            Buffer::F32(b) => b.ensure(len),
            Buffer::Bf16(b) => b.ensure(len),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match self {
            Buffer::F32(b) => b.bytes(),
            Buffer::Bf16(b) => b.bytes(),
        }
    }

    /// The first `rows` rows of `width` elements.
    pub fn rows(&self, rows: usize, width: usize) -> Rows<'_> {
        match self {
            Buffer::F32(b) => Rows::f32(&b.as_slice()[..rows * width], width),
            Buffer::Bf16(b) => Rows::bf16(&b.as_slice()[..rows * width], width),
        }
    }

    /// The first `rows` rows of `width` elements, to write; grows if needed.
    pub fn rows_mut(&mut self, rows: usize, width: usize) -> RowsMut<'_> {
        self.ensure(rows * width);
        match self {
            Buffer::F32(b) => RowsMut::f32(&mut b.as_mut_slice()[..rows * width], width),
            Buffer::Bf16(b) => RowsMut::bf16(&mut b.as_mut_slice()[..rows * width], width),
        }
    }
}
