//! Products of matrices by a kernel of our choice: Burn without autotune knows one.

use super::elements;
use burn::backend::Cube;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy as Levels;
use cubek::matmul::routine::BlueprintStrategy::Inferred;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

/// The shortest side from which on the kernel below is the fastest, and what sides and steps between rows must be multiples
/// of.
const SHORT: usize = 64;
const STEP: usize = 8;

/// `a b` in a precision, by the kernel that was fastest on an H200 (some warps copy, others multiply on tensor cores; f32 is
/// rounded to tf32 as by Burn's); `None` where another will do better or that cannot run.
pub(crate) fn product<const D: usize>(a: &Tensor<D>, b: &Tensor<D>, precision: DType) -> Option<Tensor<D>> {
    let sides = [a.dims()[D - 2], a.dims()[D - 1], b.dims()[D - 1]];
    let fits = sides.iter().all(|side| *side >= SHORT && side.is_multiple_of(STEP));
    if crate::ops::on_host(&a.device()) || !fits || a.dtype() != b.dtype() {
        return None;
    }
    let [a, b] = [a, b].map(|matrices| matrices.clone().try_into_primitive::<Cube>().ok().filter(regular));
    let (a, b) = (a?, b?);
    let out = init_matmul_output(&a, &b, precision);
    multiplied(a, b, out).map(super::tensor)
}

/// `a b` by that kernel, of matrices that lie as it copies them.
pub(super) fn multiplied(a: CubeTensor, b: CubeTensor, out: CubeTensor) -> Option<CubeTensor> {
    let globals = MatmulGlobalElems { lhs: elements(&a), rhs: elements(&b), out: elements(&out) };
    let [left, right] = [(a, globals.lhs), (b, globals.rhs)].map(|(x, kind)| InputBinding::new(x.binding(), kind));
    let kernel = Strategy::from(Levels::SpecializedTmaMma(Inferred(().into())));
    let mut kinds = MatmulElems::from_globals(&globals);
    launch_ref(&kernel, &out.client, left, right, out.clone().binding(), &mut kinds).ok()?;
    Some(out)
}

/// Whether matrices lie in memory as the kernel copies them: neighbours of a row or of a column side by side, everything else
/// at whole steps.
fn regular(matrices: &CubeTensor) -> bool {
    let (shape, strides) = (matrices.meta.shape(), matrices.meta.strides());
    let axes = shape.num_dims();
    let ones = strides[axes - 2..].iter().filter(|stride| **stride == 1).count();
    let steps = shape.iter().zip(strides.iter()).filter(|(side, stride)| **side > 1 && **stride != 1);
    ones == 1 && steps.into_iter().all(|(_, stride)| *stride > 0 && stride.is_multiple_of(STEP))
}
