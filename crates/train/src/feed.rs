//! What the host tells the device in an update.
//!
//! An update of a small model is a thousand short kernels, and launching them takes longer than running them. A GPU can repeat what it
//! was asked for once ([`crate::recorder`]), with the same buffers: what differs from update to update must lie in buffers that are
//! written before. So whatever the host knows comes through here. While an update is recorded, every such number has a place, and a
//! recipe that says what to write there the next time.

use crate::batch::HostBatch;
use crate::gpu::Step;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use sparing_model::Error;
use std::cell::RefCell;
use std::sync::Arc;

/// Everything that differs from one update to another of the same form.
#[derive(Debug, Clone)]
pub struct Moment {
    pub(crate) batch: Arc<HostBatch>,
    /// Of everything random.
    pub(crate) seed: u64,
    /// Share of its own that a guided layer reads.
    pub(crate) own: f32,
    /// The optimizer's numbers; not yet known while the batch is made.
    pub(crate) step: Option<Step>,
}

/// What makes two updates the same for a device: the same operations on tensors of the same shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Form {
    pub(crate) count: usize,
    pub(crate) length: usize,
    /// Token types are looked up.
    pub(crate) types: bool,
    /// There is no padding.
    pub(crate) full: bool,
    /// How layers are guided.
    pub(crate) phase: u8,
}

impl Form {
    pub(crate) fn of(batch: &HostBatch, phase: u8) -> Form {
        let (types, full) = (batch.most_type() > 0, batch.is_full());
        Form { count: batch.ids.len(), length: batch.length, types, full, phase }
    }
}

/// Numbers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    Ints(Vec<i32>),
    Floats(Vec<f32>),
}

/// What a place gets in another update.
pub(crate) type Recipe = Box<dyn Fn(&Moment) -> Result<Numbers, Error>>;

/// A tensor that an update reads, and what to write into it. Without a recipe it stays as it is.
pub(crate) struct Place {
    pub(crate) tensor: Fed,
    pub(crate) recipe: Option<Recipe>,
}

/// A line of numbers on a device.
#[derive(Clone)]
pub(crate) enum Fed {
    Ints(Tensor<1, Int>),
    Floats(Tensor<1>),
}

/// The places of an update, in the order in which it asks for them.
#[derive(Default)]
pub(crate) struct Tape {
    pub(crate) places: Vec<Place>,
    /// Places are there already: the next one to give out.
    next: Option<usize>,
}

thread_local! {
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
}

/// Runs an update, and notes where it puts what.
pub(crate) fn noted<T>(run: impl FnOnce() -> T) -> (T, Tape) {
    TAPE.replace(Some(Tape::default()));
    let found = run();
    (found, TAPE.take().unwrap_or_default())
}

/// Runs an update again that reads the places of one before.
pub(crate) fn again<T>(tape: Tape, run: impl FnOnce() -> T) -> (T, Tape) {
    TAPE.replace(Some(Tape { next: Some(0), ..tape }));
    let found = run();
    (found, TAPE.take().unwrap_or_default())
}

/// Whole numbers: what they are now, and what they are at other times.
pub(crate) fn ints(
    device: &Device,
    now: Vec<i32>,
    later: impl Fn(&Moment) -> Result<Vec<i32>, Error> + 'static,
) -> Tensor<1, Int> {
    let fed = feed(device, Numbers::Ints(now), || Some(Box::new(move |moment| later(moment).map(Numbers::Ints))));
    let Fed::Ints(tensor) = fed else { unreachable!("an update that is run again asks for the same") };
    tensor
}

/// Numbers: what they are now, and what they are at other times.
pub(crate) fn floats(
    device: &Device,
    now: Vec<f32>,
    later: impl Fn(&Moment) -> Result<Vec<f32>, Error> + 'static,
) -> Tensor<1> {
    let fed = feed(device, Numbers::Floats(now), || Some(Box::new(move |moment| later(moment).map(Numbers::Floats))));
    let Fed::Floats(tensor) = fed else { unreachable!("an update that is run again asks for the same") };
    tensor
}

/// Numbers that are the same in all updates of a form.
pub(crate) fn constant<const D: usize>(device: &Device, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    let fed = feed(device, Numbers::Floats(values), || None);
    let Fed::Floats(tensor) = fed else { unreachable!("an update that is run again asks for the same") };
    tensor.reshape(shape)
}

fn feed(device: &Device, now: Numbers, recipe: impl FnOnce() -> Option<Recipe>) -> Fed {
    TAPE.with_borrow_mut(|tape| {
        // Whoever asks for more than before gets what is now, and a repetition that differs is not trusted.
        if let Some(Tape { places, next: Some(next) }) = tape
            && let Some(place) = places.get(*next)
        {
            *next += 1;
            return place.tensor.clone();
        }
        let fed = match now {
            Numbers::Ints(values) => {
                let length = values.len();
                Fed::Ints(Tensor::from_data(TensorData::new(values, [length]), (device, DType::I32)))
            }
            Numbers::Floats(values) => {
                let length = values.len();
                Fed::Floats(Tensor::from_data(TensorData::new(values, [length]), (device, DType::F32)))
            }
        };
        if let Some(tape) = tape {
            tape.places.push(Place { tensor: fed.clone(), recipe: recipe() });
        }
        fed
    })
}
