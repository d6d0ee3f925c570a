//! What follows a multiplication, while the tile is still in the first-level cache.

use crate::Activation;
use crate::math::{Function, GeluCoarse, Slope, with_activation};
use crate::product::After;
use crate::rows::{Element, Elements, ElementsMut, Rows, RowsMut};
use crate::simd::{Simd, kernel};

/// What happens to a result before it is stored: `activation(x + bias) + residual · residual_scale`.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// One number per output.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Added last; as many rows as the result.
    pub residual: Option<Rows<'a>>,
    /// One number per output that the residual is multiplied by; `None`: as it is.
    pub residual_scale: Option<&'a [f32]>,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue { bias: None, activation: Activation::Identity, residual: None, residual_scale: None }
    }
}

/// A matrix by address.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub data: *mut u8,
    pub element: Element,
    pub stride: usize,
}

// SAFETY: a `Place` is only an address; whoever uses it across threads keeps accesses disjoint.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    pub(crate) fn of(rows: &mut RowsMut) -> Place {
        let (element, stride) = (rows.element(), rows.stride());
        let data = match rows.data() {
            ElementsMut::F32(d) => d.as_mut_ptr().cast(),
            ElementsMut::Bf16(d) => d.as_mut_ptr().cast(),
        };
        Place { data, element, stride }
    }

    fn to_read(rows: Rows) -> Place {
        let data = match rows.data() {
            Elements::F32(d) => d.as_ptr().cast::<u8>(),
            Elements::Bf16(d) => d.as_ptr().cast(),
        };
        Place { data: data.cast_mut(), element: rows.element(), stride: rows.stride() }
    }

    /// Address of an element.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, row: usize, column: usize) -> *mut u8 {
        let size = match self.element {
            Element::F32 => 4,
            Element::Bf16 => 2,
        };
        unsafe { self.data.add((row * self.stride + column) * size) }
    }
}

/// Everything the epilogue of one tile needs.
#[derive(Clone, Copy)]
pub(crate) struct TileResult {
    /// Sums: f32, or i32 when `column_scales` is set.
    pub sums: *const u32,
    pub step: usize,
    /// Where the tile goes in the result.
    pub row: usize,
    pub column: usize,
    pub rows: usize,
    pub columns: usize,
    /// Int8: scale per column and scale x sum of bytes; or null.
    pub column_scales: (*const f32, *const f32),
    /// Int8: scale and least value per row of the tile; or null.
    pub row_scales: *const f32,
}

/// The epilogue of a whole multiplication, by address.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    bias: *const f32,
    activation: Activation,
    residual: Option<Place>,
    /// Of the residual; or null.
    residual_scale: *const f32,
    training: Training,
    out: Place,
}

/// What only training wants.
#[derive(Clone, Copy)]
enum Training {
    Nothing,
    /// Store what goes into the activation here too (f32).
    Before(Place),
    /// Multiply by the activation's slope at these numbers (f32) instead of applying it.
    SlopeAt(Place),
}

// SAFETY: addresses only; tiles are disjoint.
unsafe impl Send for Finish {}
// SAFETY: as above.
unsafe impl Sync for Finish {}

impl Finish {
    pub(crate) fn new(epilogue: &Epilogue, out: &mut RowsMut) -> Finish {
        Finish {
            bias: epilogue.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            activation: epilogue.activation,
            residual: epilogue.residual.map(Place::to_read),
            residual_scale: epilogue.residual_scale.map_or(std::ptr::null(), <[f32]>::as_ptr),
            training: Training::Nothing,
            out: Place::of(out),
        }
    }

    /// Nothing follows: the product alone.
    pub(crate) fn plain(out: Place) -> Finish {
        let (bias, activation) = (std::ptr::null(), Activation::Identity);
        Finish { bias, activation, residual: None, residual_scale: bias, training: Training::Nothing, out }
    }

    /// Only a number per output is added.
    pub(crate) fn biased(out: Place, bias: *const f32) -> Finish {
        Finish { bias, ..Finish::plain(out) }
    }

    /// What follows a product in training; all f32.
    pub(crate) fn training(after: &After, activated: Option<(Activation, RowsMut)>, out: &mut RowsMut) -> Finish {
        let (activation, training) = match (after.slope, activated) {
            (Some((activation, at)), _) => (activation, Training::SlopeAt(Place::to_read(at))),
            (None, Some((activation, mut before))) => (activation, Training::Before(Place::of(&mut before))),
            (None, None) => (Activation::Identity, Training::Nothing),
        };
        let out = Place::of(out);
        Finish {
            bias: after.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            activation,
            residual: after.accumulate.then_some(out),
            residual_scale: std::ptr::null(),
            training,
            out,
        }
    }
}

#[inline(always)]
unsafe fn finish<S: Simd>(finish: &Finish, tile: &TileResult) {
    unsafe {
        match finish.training {
            Training::Nothing => {}
            Training::Before(before) => {
                return with_activation!(finish.activation, A => finish_before::<S, A>(finish, tile, before));
            }
            Training::SlopeAt(at) => {
                return with_activation!(finish.activation, A => finish_slope::<S, A>(finish, tile, at));
            }
        }
        if finish.activation == Activation::Gelu && finish.out.element == Element::Bf16 {
            return finish_with::<S, GeluCoarse>(finish, tile);
        }
        with_activation!(finish.activation, A => finish_with::<S, A>(finish, tile))
    }
}

#[inline(always)]
unsafe fn finish_with<S: Simd, A: Function>(finish: &Finish, tile: &TileResult) {
    unsafe {
        match (tile.column_scales.0.is_null(), tile.columns == 2 * S::LANES) {
            (true, true) => finish_as::<S, A, false, true>(finish, tile),
            (true, false) => finish_as::<S, A, false, false>(finish, tile),
            (false, true) => finish_as::<S, A, true, true>(finish, tile),
            (false, false) => finish_as::<S, A, true, false>(finish, tile),
        }
    }
}

#[inline(always)]
unsafe fn finish_as<S: Simd, A: Function, const INT8: bool, const WHOLE: bool>(finish: &Finish, tile: &TileResult) {
    unsafe {
        let mut at = 0;
        while at < tile.columns {
            let n = if WHOLE { S::LANES } else { S::LANES.min(tile.columns - at) };
            let column = tile.column + at;
            let load = |p: *const f32| if WHOLE { S::load(p) } else { S::load_n(p, n) };
            let bias = if finish.bias.is_null() { S::splat(0.0) } else { load(finish.bias.add(column)) };
            let scale = if INT8 { S::load(tile.column_scales.0.add(at)) } else { S::splat(1.0) };
            let offset = if INT8 { S::load(tile.column_scales.1.add(at)) } else { S::splat(0.0) };
            let unscaled = finish.residual_scale.is_null();
            let residual_scale = if unscaled { S::splat(1.0) } else { load(finish.residual_scale.add(column)) };
            for i in 0..tile.rows {
                let sums = tile.sums.add(i * tile.step + at);
                let x = if INT8 {
                    // x = Σ (s q + l) w = s Σ q w + l Σ w, with s and l the row's scale and least value.
                    let (row_scale, least) = (*tile.row_scales.add(2 * i), *tile.row_scales.add(2 * i + 1));
                    let sum = S::mul(S::load_i32(sums.cast()), S::splat(row_scale));
                    S::fma(sum, scale, S::fma(S::splat(least), offset, bias))
                } else {
                    S::add(S::load(sums.cast()), bias)
                };
                let mut y = A::apply::<S>(x);
                let row = tile.row + i;
                if let Some(residual) = finish.residual {
                    let p = residual.at(row, column);
                    let r = match (residual.element, WHOLE) {
                        (Element::F32, true) => S::load(p.cast()),
                        (Element::F32, false) => S::load_n(p.cast(), n),
                        (Element::Bf16, true) => S::load_bf16(p.cast()),
                        (Element::Bf16, false) => S::load_bf16_n(p.cast(), n),
                    };
                    y = S::fma(r, residual_scale, y);
                }
                let p = finish.out.at(row, column);
                match (finish.out.element, WHOLE) {
                    (Element::F32, true) => S::store(p.cast(), y),
                    (Element::F32, false) => S::store_n(p.cast(), y, n),
                    (Element::Bf16, true) => S::store_bf16(p.cast(), y),
                    (Element::Bf16, false) => S::store_bf16_n(p.cast(), y, n),
                }
            }
            at += n;
        }
    }
}

/// Calls `f(row, column, n, sum + bias)` for every vector of a tile of f32 sums.
#[inline(always)]
unsafe fn each<S: Simd>(finish: &Finish, tile: &TileResult, mut f: impl FnMut(usize, usize, usize, S::F)) {
    let mut at = 0;
    while at < tile.columns {
        let n = S::LANES.min(tile.columns - at);
        let column = tile.column + at;
        // SAFETY: the caller's promise about `finish` and `tile`.
        unsafe {
            let bias = if finish.bias.is_null() { S::splat(0.0) } else { S::load_n(finish.bias.add(column), n) };
            for i in 0..tile.rows {
                f(tile.row + i, column, n, S::add(S::load(tile.sums.add(i * tile.step + at).cast()), bias));
            }
        }
        at += n;
    }
}

#[inline(always)]
unsafe fn finish_before<S: Simd, A: Function>(finish: &Finish, tile: &TileResult, before: Place) {
    // SAFETY: the caller's promise.
    unsafe {
        each::<S>(finish, tile, |row, column, n, x| {
            S::store_n(before.at(row, column).cast(), x, n);
            S::store_n(finish.out.at(row, column).cast(), A::apply::<S>(x), n);
        });
    }
}

#[inline(always)]
unsafe fn finish_slope<S: Simd, A: Slope>(finish: &Finish, tile: &TileResult, at: Place) {
    // SAFETY: the caller's promise.
    unsafe {
        each::<S>(finish, tile, |row, column, n, x| {
            let mut y = S::mul(x, A::slope::<S>(S::load_n(at.at(row, column).cast(), n)));
            let p = finish.out.at(row, column).cast();
            if finish.residual.is_some() {
                y = S::add(y, S::load_n(p, n));
            }
            S::store_n(p, y, n);
        });
    }
}

kernel!(
    /// Applies the epilogue to one tile and stores it.
    ///
    /// # Safety
    /// All addresses in `finish` and `tile` are valid for the tile, and no other thread touches its results.
    pub(crate) finish_at = finish(whole: &Finish, tile: &TileResult)
);
