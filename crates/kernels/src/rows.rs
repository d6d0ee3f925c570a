//! Views of matrices: rows of f32 or bf16, possibly some columns of a wider matrix.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Element types of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// bfloat16.
    Bf16,
}

/// The nearest bfloat16, ties to even; NaN stays NaN.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return ((bits >> 16) | 0x40) as u16;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// Exact.
#[inline]
pub fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// Elements of one of the two types.
#[derive(Debug, Clone, Copy)]
pub enum Elements<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// bfloat16 bits.
    Bf16(&'a [u16]),
}

/// Elements of one of the two types, to write.
#[derive(Debug)]
pub enum ElementsMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// bfloat16 bits.
    Bf16(&'a mut [u16]),
}

/// `count` rows of `width` elements, `stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    data: Elements<'a>,
    count: usize,
    width: usize,
    stride: usize,
}

/// [`Rows`] to write.
#[derive(Debug)]
pub struct RowsMut<'a> {
    data: ElementsMut<'a>,
    count: usize,
    width: usize,
    stride: usize,
}

fn count_rows(len: usize, width: usize) -> usize {
    assert!(width > 0 && len.is_multiple_of(width), "{len} elements are no whole rows of {width}");
    len / width
}

macro_rules! shape {
    () => {
        /// Number of rows.
        pub fn count(&self) -> usize {
            self.count
        }

        /// Elements in a row.
        pub fn width(&self) -> usize {
            self.width
        }

        /// Elements between the starts of two rows.
        pub fn stride(&self) -> usize {
            self.stride
        }

        /// First element, and one past the last, of these rows in the data.
        fn span(&self, rows: &Range<usize>) -> Range<usize> {
            assert!(rows.start <= rows.end && rows.end <= self.count, "rows {rows:?} of {}", self.count);
            if rows.is_empty() { 0..0 } else { rows.start * self.stride..(rows.end - 1) * self.stride + self.width }
        }
    };
}

impl<'a> Rows<'a> {
    /// Rows of f32 without gaps.
    pub fn f32(data: &'a [f32], width: usize) -> Self {
        Rows { count: count_rows(data.len(), width), data: Elements::F32(data), width, stride: width }
    }

    /// Rows of bf16 without gaps.
    pub fn bf16(data: &'a [u16], width: usize) -> Self {
        Rows { count: count_rows(data.len(), width), data: Elements::Bf16(data), width, stride: width }
    }

    shape!();

    /// The element type.
    pub fn element(&self) -> Element {
        match self.data {
            Elements::F32(_) => Element::F32,
            Elements::Bf16(_) => Element::Bf16,
        }
    }

    /// The elements from the first row's first to the last row's last.
    pub fn data(&self) -> Elements<'a> {
        self.data
    }

    /// Some of the rows.
    pub fn range(&self, rows: Range<usize>) -> Rows<'a> {
        let span = self.span(&rows);
        let data = match self.data {
            Elements::F32(d) => Elements::F32(&d[span]),
            Elements::Bf16(d) => Elements::Bf16(&d[span]),
        };
        Rows { data, count: rows.len(), ..*self }
    }

    /// Some of the columns.
    pub fn columns(&self, columns: Range<usize>) -> Rows<'a> {
        assert!(columns.start < columns.end && columns.end <= self.width, "columns {columns:?} of {}", self.width);
        let cut = self.width - columns.end;
        let data = match self.data {
            Elements::F32(d) if self.count > 0 => Elements::F32(&d[columns.start..d.len() - cut]),
            Elements::Bf16(d) if self.count > 0 => Elements::Bf16(&d[columns.start..d.len() - cut]),
            empty => empty,
        };
        Rows { data, width: columns.len(), ..*self }
    }

    /// One element as f32; for references and small jobs.
    pub fn get(&self, row: usize, column: usize) -> f32 {
        assert!(row < self.count && column < self.width);
        match self.data {
            Elements::F32(d) => d[row * self.stride + column],
            Elements::Bf16(d) => bf16_to_f32(d[row * self.stride + column]),
        }
    }

    /// Copies one row out as f32.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        let span = self.span(&(row..row + 1));
        match self.data {
            Elements::F32(d) => out.copy_from_slice(&d[span]),
            Elements::Bf16(d) => {
                for (o, x) in out.iter_mut().zip(&d[span]) {
                    *o = bf16_to_f32(*x);
                }
            }
        }
    }

    /// One row, when the elements are f32.
    pub fn row_f32(&self, row: usize) -> &'a [f32] {
        let span = self.span(&(row..row + 1));
        match self.data {
            Elements::F32(d) => &d[span],
            Elements::Bf16(_) => panic!("row_f32 of bf16 rows"),
        }
    }
}

impl<'a> RowsMut<'a> {
    /// Rows of f32 without gaps.
    pub fn f32(data: &'a mut [f32], width: usize) -> Self {
        RowsMut { count: count_rows(data.len(), width), data: ElementsMut::F32(data), width, stride: width }
    }

    /// Rows of bf16 without gaps.
    pub fn bf16(data: &'a mut [u16], width: usize) -> Self {
        RowsMut { count: count_rows(data.len(), width), data: ElementsMut::Bf16(data), width, stride: width }
    }

    shape!();

    /// The element type.
    pub fn element(&self) -> Element {
        match self.data {
            ElementsMut::F32(_) => Element::F32,
            ElementsMut::Bf16(_) => Element::Bf16,
        }
    }

    /// The elements, to write.
    pub fn data(&mut self) -> ElementsMut<'_> {
        match &mut self.data {
            ElementsMut::F32(d) => ElementsMut::F32(d),
            ElementsMut::Bf16(d) => ElementsMut::Bf16(d),
        }
    }

    /// To read.
    pub fn as_rows(&self) -> Rows<'_> {
        let data = match &self.data {
            ElementsMut::F32(d) => Elements::F32(d),
            ElementsMut::Bf16(d) => Elements::Bf16(d),
        };
        Rows { data, count: self.count, width: self.width, stride: self.stride }
    }

    /// The same rows for a shorter time.
    pub fn borrow(&mut self) -> RowsMut<'_> {
        let (count, width, stride) = (self.count, self.width, self.stride);
        RowsMut { data: self.data(), count, width, stride }
    }

    /// Some of the rows.
    pub fn range(self, rows: Range<usize>) -> RowsMut<'a> {
        let span = self.span(&rows);
        let data = match self.data {
            ElementsMut::F32(d) => ElementsMut::F32(&mut d[span]),
            ElementsMut::Bf16(d) => ElementsMut::Bf16(&mut d[span]),
        };
        RowsMut { data, count: rows.len(), ..self }
    }

    /// Some of the columns.
    pub fn columns(self, columns: Range<usize>) -> RowsMut<'a> {
        assert!(columns.start < columns.end && columns.end <= self.width, "columns {columns:?} of {}", self.width);
        let cut = self.width - columns.end;
        let count = self.count;
        let cut = |len: usize| if count == 0 { 0..0 } else { columns.start..len - cut };
        let data = match self.data {
            ElementsMut::F32(d) => ElementsMut::F32({
                let span = cut(d.len());
                &mut d[span]
            }),
            ElementsMut::Bf16(d) => ElementsMut::Bf16({
                let span = cut(d.len());
                &mut d[span]
            }),
        };
        RowsMut { data, width: columns.len(), ..self }
    }

    /// Sets one element; for references and small jobs.
    pub fn set(&mut self, row: usize, column: usize, value: f32) {
        assert!(row < self.count && column < self.width);
        match &mut self.data {
            ElementsMut::F32(d) => d[row * self.stride + column] = value,
            ElementsMut::Bf16(d) => d[row * self.stride + column] = f32_to_bf16(value),
        }
    }

    /// One row, when the elements are f32.
    pub fn row_f32(&mut self, row: usize) -> &mut [f32] {
        let span = self.span(&(row..row + 1));
        match &mut self.data {
            ElementsMut::F32(d) => &mut d[span],
            ElementsMut::Bf16(_) => panic!("row_f32 of bf16 rows"),
        }
    }

    /// All elements, when they are f32 and there are no gaps between rows.
    pub fn all_f32(&mut self) -> &mut [f32] {
        assert!(self.width == self.stride || self.count < 2, "rows with gaps");
        match &mut self.data {
            ElementsMut::F32(d) => d,
            ElementsMut::Bf16(_) => panic!("all_f32 of bf16 rows"),
        }
    }

    /// Copies a row in.
    pub fn write_row(&mut self, row: usize, values: &[f32]) {
        let span = self.span(&(row..row + 1));
        match &mut self.data {
            ElementsMut::F32(d) => d[span].copy_from_slice(values),
            ElementsMut::Bf16(d) => {
                for (o, x) in d[span].iter_mut().zip(values) {
                    *o = f32_to_bf16(*x);
                }
            }
        }
    }
}

/// Rows cut into chunks of consecutive rows that different threads may take and write at the same time.
pub struct Chunks<'a> {
    data: RawData,
    count: usize,
    width: usize,
    stride: usize,
    chunk: usize,
    taken: [AtomicU64; Chunks::MOST / 64],
    _rows: std::marker::PhantomData<RowsMut<'a>>,
}

enum RawData {
    F32(*mut f32),
    Bf16(*mut u16),
}

// SAFETY: a chunk is handed out at most once (`taken`), so no two threads ever hold the same elements.
unsafe impl Send for Chunks<'_> {}
// SAFETY: as above; `take` is the only access.
unsafe impl Sync for Chunks<'_> {}

impl<'a> Chunks<'a> {
    /// The most chunks there can be.
    pub const MOST: usize = 1024;

    /// Cuts into chunks of `chunk` rows; the last may be shorter.
    pub fn new(mut rows: RowsMut<'a>, chunk: usize) -> Self {
        assert!(chunk > 0 && rows.count.div_ceil(chunk) <= Self::MOST, "too many chunks");
        let data = match rows.data() {
            ElementsMut::F32(d) => RawData::F32(d.as_mut_ptr()),
            ElementsMut::Bf16(d) => RawData::Bf16(d.as_mut_ptr()),
        };
        Chunks {
            data,
            count: rows.count,
            width: rows.width,
            stride: rows.stride,
            chunk,
            taken: [const { AtomicU64::new(0) }; Self::MOST / 64],
            _rows: std::marker::PhantomData,
        }
    }

    /// Chunk `index`, once.
    ///
    /// # Panics
    /// If it was taken before or does not exist.
    pub fn take(&self, index: usize) -> RowsMut<'a> {
        let start = index * self.chunk;
        assert!(start < self.count, "no chunk {index}");
        let bit = 1u64 << (index % 64);
        assert!(self.taken[index / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0, "chunk {index} taken twice");
        let count = self.chunk.min(self.count - start);
        // The span ends with the last row's last element; gaps between rows (other columns) belong to the
        // exclusive borrow that made `self`, and to this chunk alone.
        let (offset, len) = (start * self.stride, (count - 1) * self.stride + self.width);
        // SAFETY: in bounds of the borrow behind `self`; disjoint from every other chunk because chunks are
        // whole row ranges and each is handed out once.
        let data = unsafe {
            match self.data {
                RawData::F32(p) => ElementsMut::F32(std::slice::from_raw_parts_mut(p.add(offset), len)),
                RawData::Bf16(p) => ElementsMut::Bf16(std::slice::from_raw_parts_mut(p.add(offset), len)),
            }
        };
        RowsMut { data, count, width: self.width, stride: self.stride }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_ranges_address_the_right_elements() {
        let data: Vec<f32> = (0..12).map(|x| x as f32).collect();
        let rows = Rows::f32(&data, 4).columns(1..3).range(1..3);
        assert_eq!((rows.count(), rows.width(), rows.stride()), (2, 2, 4));
        assert_eq!([rows.get(0, 0), rows.get(0, 1), rows.get(1, 0), rows.get(1, 1)], [5.0, 6.0, 9.0, 10.0]);
    }

    #[test]
    fn chunks_cover_all_rows_once() {
        let mut data = vec![0f32; 7 * 3];
        let chunks = Chunks::new(RowsMut::f32(&mut data, 3), 2);
        std::thread::scope(|s| {
            for i in 0..4 {
                let chunks = &chunks;
                s.spawn(move || {
                    let mut rows = chunks.take(i);
                    for r in 0..rows.count() {
                        rows.write_row(r, &[i as f32 + 1.0; 3]);
                    }
                });
            }
        });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chunks.take(1))).is_err());
        let want: Vec<f32> = (0..7).flat_map(|r| [(r / 2 + 1) as f32; 3]).collect();
        assert_eq!(data, want);
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        assert_eq!(f32_to_bf16(1.0), 0x3f80);
        assert_eq!(bf16_to_f32(f32_to_bf16(1.0 + 1.0 / 256.0)), 1.0);
        assert_eq!(bf16_to_f32(f32_to_bf16(1.0 + 3.0 / 256.0)), 1.0 + 4.0 / 256.0);
        assert!(bf16_to_f32(f32_to_bf16(f32::NAN)).is_nan());
        assert_eq!(bf16_to_f32(f32_to_bf16(f32::INFINITY)), f32::INFINITY);
    }
}
