//! The bridge: plain slices of f32 in, plain vectors out, a node in Burn's graph of gradients.

use super::memory;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Device, Tensor, TensorData};
use sparing_kernels::training::AttentionSpace;
use sparing_kernels::{PerWorker, Products, Rows, Team};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A tensor in the host's memory that is recorded for gradients.
type Tracked = FloatTensor<Autodiff<Flex>>;

/// Whether a device's numbers are in the host's memory, so that the operations here apply.
pub(crate) fn on_host(device: &Device) -> bool {
    device.clone().without_autodiff() == Device::flex()
}

/// The threads that compute, and their working memory.
pub(super) struct Workers {
    pub(super) team: Team,
    products: Mutex<Products>,
    pub(super) attention: PerWorker<AttentionSpace>,
}

impl Workers {
    /// The working memory of products; one product at a time.
    pub(super) fn products(&self) -> MutexGuard<'_, Products> {
        self.products.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many threads as there are cores, started once.
pub(super) fn workers() -> &'static Workers {
    static WORKERS: OnceLock<Workers> = OnceLock::new();
    WORKERS.get_or_init(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Workers {
            team: Team::new(threads),
            products: Mutex::new(Products::new(threads)),
            attention: PerWorker::new(threads, AttentionSpace::default),
        }
    })
}

/// A matrix of f32 in the host's memory, without gaps. A clone shares the numbers; the last one gives their place back.
#[derive(Clone)]
pub(super) struct Matrix {
    /// Always there but while it is dropped.
    tensor: Option<FlexTensor>,
    pub(super) shape: [usize; 2],
}

impl Matrix {
    fn new(tensor: FlexTensor) -> Matrix {
        let tensor = tensor.to_contiguous();
        let shape = tensor.layout().shape().dims::<2>();
        Matrix { tensor: Some(tensor), shape }
    }

    /// The numbers, row by row.
    pub(super) fn numbers(&self) -> &[f32] {
        self.tensor.as_ref().and_then(FlexTensor::as_slice).expect("f32 without gaps")
    }

    /// The numbers as rows.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows::f32(self.numbers(), self.shape[1])
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        if let Some(tensor) = self.tensor.take().filter(FlexTensor::is_unique)
            && let Ok(numbers) = tensor.into_data().try_into_vec::<f32>()
        {
            memory::give(numbers);
        }
    }
}

/// What an operation computed and how its gradients are computed.
pub(super) struct Computed<B> {
    pub(super) values: Vec<f32>,
    pub(super) shape: [usize; 2],
    /// From the gradient of the values to those of the inputs; only those that are asked for are looked at.
    pub(super) back: B,
}

/// Gradients of inputs, shaped as they are.
pub(super) type Back<const N: usize> = [Option<Vec<f32>>; N];

/// Runs an operation on tensors in the host's memory. Recorded for gradients if one of the inputs is.
pub(super) fn operation<const N: usize, B>(
    inputs: [Tensor<2>; N],
    compute: impl FnOnce(&[Matrix; N]) -> Computed<B>,
) -> Tensor<2>
where
    B: FnOnce(&Matrix, [bool; N]) -> Back<N> + Send + 'static,
{
    if !inputs.iter().any(|input| input.device().is_autodiff()) {
        let inputs = inputs.map(|input| Matrix::new(plain(input)));
        let Computed { values, shape, .. } = compute(&inputs);
        return stored_rows(values, shape);
    }
    let inputs = inputs.map(|input| match input.device().is_autodiff() {
        true => input.try_into_primitive::<Autodiff<Flex>>().expect("a tensor in the host's memory"),
        false => Tracked::new(plain(input)),
    });
    let guards = inputs.each_ref().map(Tracked::node);
    let inputs = inputs.map(|input| Matrix::new(input.into_primitive()));
    let Computed { values, shape, back } = compute(&inputs);
    let shapes = inputs.map(|input| input.shape);
    let values = stored(values, shape);
    let output = match Operation.prepare::<NoCheckpointing>(guards).compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(values),
        OpsKind::Tracked(prepared) => {
            let back: Function<N> = Box::new(back);
            prepared.finish(State { back: Arc::new(Mutex::new(Some(back))), shapes }, values)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(output)
}

/// The numbers of a tensor that records nothing and shares them with nobody, to be overwritten; or the tensor.
#[expect(clippy::result_large_err, reason = "the tensor goes on as it came")]
pub(super) fn own_numbers(x: Tensor<2>) -> Result<Vec<f32>, Tensor<2>> {
    if x.device().is_autodiff() {
        return Err(x);
    }
    let numbers = plain(x);
    if numbers.is_unique() && numbers.is_contiguous() && numbers.layout().start_offset() == 0 {
        return Ok(numbers.into_data().try_into_vec().expect("f32"));
    }
    Err(Tensor::from_primitive::<Flex>(numbers))
}

/// Numbers as a tensor that records nothing.
pub(super) fn stored_rows(values: Vec<f32>, shape: [usize; 2]) -> Tensor<2> {
    Tensor::from_primitive::<Flex>(stored(values, shape))
}

/// The numbers of a tensor that records nothing.
fn plain(tensor: Tensor<2>) -> FlexTensor {
    tensor.try_into_primitive::<Flex>().expect("a tensor in the host's memory")
}

fn stored(values: Vec<f32>, shape: [usize; 2]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// Every operation: what differs is the function in its state.
#[derive(Debug)]
struct Operation;

type Function<const N: usize> = Box<dyn FnOnce(&Matrix, [bool; N]) -> Back<N> + Send>;

#[derive(Clone)]
struct State<const N: usize> {
    back: Arc<Mutex<Option<Function<N>>>>,
    shapes: [[usize; 2]; N],
}

impl<const N: usize> fmt::Debug for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

impl<const N: usize> Backward<Flex, N> for Operation {
    type State = State<N>;

    fn backward(self, ops: Ops<State<N>, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Matrix::new(gradients.consume::<Flex>(&ops.node));
        let wanted: [Option<NodeId>; N] = ops.parents.map(|parent| parent.map(|node| node.id));
        let back = ops.state.back.lock().unwrap_or_else(PoisonError::into_inner).take();
        let back = back.expect("gradients are computed once");
        let found = back(&gradient, wanted.each_ref().map(Option::is_some));
        drop(gradient);
        for ((node, found), shape) in wanted.into_iter().zip(found).zip(ops.state.shapes) {
            if let (Some(node), Some(found)) = (node, found) {
                gradients.register::<Flex>(node, stored(found, shape));
            }
        }
    }
}
