//! Recording what a device is asked for, and repeating it.

use crate::feed::{Fed, Numbers};
use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::bytes::Bytes;
use cubecl::client::Client;
use sparing_model::Error;

/// A recording under way.
pub(crate) struct Recording {
    client: Client,
    /// The device still waits for its end.
    open: bool,
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Whatever went wrong, the device is to take orders again.
        if self.open {
            let _ = self.client.stop_capture();
        }
    }
}

/// What was recorded.
pub(crate) struct Graph {
    client: Client,
    graph: cubecl::client::Graph,
}

impl Recording {
    /// Gets the device of a tensor ready: what is done next is done, and leaves room for recording it. `None`: no device of ours.
    pub(crate) fn prepare(on: &Tensor<1>) -> Result<Option<Recording>, Error> {
        if crate::ops::on_host(&on.device()) {
            return Ok(None);
        }
        let Ok(tensor) = on.clone().try_into_primitive::<Cube>() else { return Ok(None) };
        // Beside what it holds already an update is in memory up to three times while it is recorded, and once from then on.
        let (used, all) = (on.device().memory_pool_usage(), tensor.client.properties().memory.max_memory());
        if let (Some(used), Some(all)) = (used, all)
            && 2 * used.bytes_reserved > all
        {
            return Err(Error::new("more than half of the device's memory is taken"));
        }
        tensor.client.graph_prepare().map_err(failed)?;
        Ok(Some(Recording { client: tensor.client.clone(), open: true }))
    }

    /// From now on nothing is done but recorded.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.client.start_capture().map_err(failed)
    }

    /// Up to here.
    pub(crate) fn end(mut self) -> Result<Graph, Error> {
        self.open = false;
        let graph = self.client.stop_capture().map_err(failed)?;
        Ok(Graph { client: self.client.clone(), graph })
    }
}

impl Graph {
    /// Writes into a tensor that the recording reads.
    pub(crate) fn write(&self, tensor: &Fed, numbers: Numbers) -> Result<(), Error> {
        let (place, bytes): (Option<CubeTensor>, _) = match (tensor, numbers) {
            (Fed::Ints(tensor), Numbers::Ints(numbers)) => {
                (tensor.clone().try_into_primitive::<Cube>().ok(), Bytes::from_elems(numbers))
            }
            (Fed::Floats(tensor), Numbers::Floats(numbers)) => {
                (tensor.clone().try_into_primitive::<Cube>().ok(), Bytes::from_elems(numbers))
            }
            _ => (None, Bytes::from_elems(Vec::<i32>::new())),
        };
        let place = place.filter(|place| place.meta.num_elements() * 4 == bytes.len());
        let place = place.ok_or_else(|| Error::new("an update that was recorded cannot be told what differs now"))?;
        self.client.write(&place.handle, bytes);
        Ok(())
    }

    /// Does what was recorded.
    pub(crate) fn replay(&self) -> Result<(), Error> {
        // SAFETY: every buffer that the recording uses and does not hold itself outlives it. What is written before is on the recorder's
        // tape, and what is found with it; parameters and moments are the optimizer's, changed where they are, and `Recorder::keep_for`
        // forgets a recording when they move; a teacher's and bounds are the objective's, which outlives the training. All work of a
        // training is asked for by one thread, one thing after the other.
        unsafe { self.graph.replay() }.map_err(failed)
    }
}

fn failed(why: impl std::fmt::Debug) -> Error {
    let line: String = format!("{why:?}").split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
    Error::new(format!("an update could not be recorded: {line}"))
}
