//! The bridge: tensors without history in, a tensor out, a node in Burn's graph of gradients.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, DispatchKindConversion, DispatchTensor, Flex};
use burn::tensor::Tensor;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// What an operation computed and how its gradients are computed.
pub(super) struct Computed<B, const D: usize = 2> {
    pub(super) values: Tensor<D>,
    /// From the gradient of the values to those of the inputs; only those that are asked for are looked at.
    pub(super) back: B,
}

/// Gradients of inputs, in their shape and precision.
pub(super) type Back<const N: usize, const D: usize = 2> = [Option<Tensor<D>>; N];

/// Runs an operation. Recorded for gradients if one of the inputs is.
pub(super) fn operation<const N: usize, const D: usize, B>(
    inputs: [Tensor<D>; N],
    compute: impl FnOnce([Tensor<D>; N]) -> Computed<B, D>,
) -> Tensor<D>
where
    B: FnOnce(Tensor<D>, [bool; N]) -> Back<N, D> + Send + 'static,
{
    if !inputs.iter().any(|input| input.device().is_autodiff()) {
        return compute(inputs).values;
    }
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if !crate::ops::on_host(&inputs[0].device()) {
        return recorded::<burn::backend::Cube, N, D, B>(inputs, compute);
    }
    recorded::<Flex, N, D, B>(inputs, compute)
}

fn recorded<E: Backend, const N: usize, const D: usize, B>(
    inputs: [Tensor<D>; N],
    compute: impl FnOnce([Tensor<D>; N]) -> Computed<B, D>,
) -> Tensor<D>
where
    B: FnOnce(Tensor<D>, [bool; N]) -> Back<N, D> + Send + 'static,
    DispatchTensor: DispatchKindConversion<E> + DispatchKindConversion<Autodiff<E>>,
{
    let inputs: [FloatTensor<Autodiff<E>>; N] = inputs.map(|input| match input.device().is_autodiff() {
        true => input.try_into_primitive::<Autodiff<E>>().expect("a tensor of this device"),
        false => FloatTensor::<Autodiff<E>>::new(input.try_into_primitive::<E>().expect("a tensor of this device")),
    });
    let nodes = inputs.each_ref().map(|input| input.node());
    let Computed { values, back } = compute(inputs.map(|input| Tensor::from_primitive::<E>(input.into_primitive())));
    let values = values.try_into_primitive::<E>().expect("a tensor of this device");
    let output = match Operation::<E, D>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(values),
        OpsKind::Tracked(prepared) => {
            let back: Function<N, D> = Box::new(back);
            prepared.finish(State(Arc::new(Mutex::new(Some(back)))), values)
        }
    };
    Tensor::from_primitive::<Autodiff<E>>(output)
}

/// Every operation on a backend: what differs is the function in its state.
struct Operation<E, const D: usize>(PhantomData<E>);

impl<E, const D: usize> fmt::Debug for Operation<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operation")
    }
}

type Function<const N: usize, const D: usize> = Box<dyn FnOnce(Tensor<D>, [bool; N]) -> Back<N, D> + Send>;

#[derive(Clone)]
struct State<const N: usize, const D: usize>(Arc<Mutex<Option<Function<N, D>>>>);

impl<const N: usize, const D: usize> fmt::Debug for State<N, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl<E: Backend, const N: usize, const D: usize> Backward<E, N> for Operation<E, D>
where
    DispatchTensor: DispatchKindConversion<E>,
{
    type State = State<N, D>;

    fn backward(self, ops: Ops<State<N, D>, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Tensor::<D>::from_primitive::<E>(gradients.consume::<E>(&ops.node));
        let wanted: [Option<NodeId>; N] = ops.parents.map(|parent| parent.map(|node| node.id));
        let back = ops.state.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let back = back.expect("gradients are computed once");
        let found = back(gradient, wanted.each_ref().map(Option::is_some));
        for (node, found) in wanted.into_iter().zip(found) {
            if let (Some(node), Some(found)) = (node, found) {
                gradients.register::<E>(node, found.try_into_primitive::<E>().expect("a tensor of this device"));
            }
        }
    }
}
