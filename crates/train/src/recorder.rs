//! Updates that a GPU repeats by itself.
//!
//! The first updates of a form are done step by step. Then one is done and recorded: run once more without being computed, so that the
//! device knows all kernels and their buffers. The next one is done step by step, undone and repeated: only a recording that finds the
//! same is trusted. From then on an update of this form is one launch, after what differs has been written ([`crate::feed`]).

#[cfg(all(test, any(feature = "cuda", feature = "wgpu")))]
mod tests;

use crate::feed::{self, Form, Moment, Tape};
use crate::gpu::fused::{Graph, Recording};
use burn::tensor::Tensor;
use sparing_model::Error;
use std::collections::BTreeMap;

/// Updates of a form before one is recorded: kernels are compiled, and a form that is rare is not worth the memory.
const BEFORE: usize = 2;
/// Forms that are recorded; each holds the memory of an update.
const FORMS: usize = 12;

/// How far a repetition may be from the update itself: sums are not always in the same order.
const FAR: f64 = 1e-2;

/// The updates that were recorded.
#[derive(Default)]
pub(crate) struct Recorder {
    seen: BTreeMap<Form, usize>,
    recorded: BTreeMap<Form, Recorded>,
    /// Where the parameters lay when they were recorded.
    layout: u64,
    /// Why the device cannot.
    gave_up: Option<String>,
}

/// What an update finds: its loss and the gradients' norm.
pub(crate) type Found = [Tensor<1>; 2];

struct Recorded {
    graph: Graph,
    tape: Tape,
    found: Found,
    /// A repetition was compared.
    trusted: bool,
}

impl Recorder {
    /// Forgets what was recorded of parameters that lay elsewhere.
    pub(crate) fn keep_for(&mut self, layout: u64) {
        if self.layout != layout {
            *self = Recorder { layout, gave_up: self.gave_up.take(), ..Recorder::default() };
        }
    }

    /// Why nothing more is recorded, if that is so.
    pub(crate) fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    /// Whether an update of this form was recorded.
    pub(crate) fn knows(&self, form: &Form) -> bool {
        self.recorded.contains_key(form)
    }

    /// Repeats an update of this form, which was recorded.
    pub(crate) fn repeat(&self, form: &Form, moment: &Moment) -> Result<Found, Error> {
        let recorded = self.recorded.get(form);
        let Recorded { graph, tape, found, .. } =
            recorded.ok_or_else(|| Error::new("no update of this form was recorded"))?;
        for place in &tape.places {
            if let Some(recipe) = &place.recipe {
                graph.write(&place.tensor, recipe(moment)?)?;
            }
        }
        graph.replay()?;
        // The next update writes to the same place.
        Ok(found.each_ref().map(|x| x.clone().mul_scalar(1.0)))
    }

    /// Whether the next update of this form is to be recorded.
    pub(crate) fn is_due(&mut self, form: &Form) -> bool {
        let seen = self.seen.entry(*form).or_default();
        *seen += 1;
        *seen > BEFORE && self.recorded.len() < FORMS && self.gave_up.is_none()
    }

    /// Gets the device of a tensor ready: what is done next is done, and leaves room for recording it.
    pub(crate) fn prepare(&mut self, on: &Tensor<1>) -> Option<Recording> {
        match Recording::prepare(on) {
            Ok(recording) => recording,
            Err(why) => {
                self.gave_up = Some(why.to_string());
                None
            }
        }
    }

    /// Records an update of this form: `update` asks for it, and it is not done. If the device cannot, the buffers that it writes are not to
    /// be read any more.
    pub(crate) fn record(
        &mut self,
        form: Form,
        recording: Recording,
        tape: Tape,
        update: impl FnOnce() -> Result<Found, Error>,
    ) -> Result<(), Error> {
        if let Err(why) = recording.begin() {
            self.gave_up = Some(why.to_string());
            return Ok(());
        }
        let (found, tape) = feed::again(tape, update);
        match recording.end() {
            Ok(graph) => _ = self.recorded.insert(form, Recorded { graph, tape, found: found?, trusted: false }),
            Err(why) => self.gave_up = Some(why.to_string()),
        }
        Ok(())
    }

    /// Whether an update of this form was repeated before, and found what it finds step by step.
    pub(crate) fn trusts(&self, form: &Form) -> bool {
        self.recorded.get(form).is_some_and(|recorded| recorded.trusted)
    }

    /// Whether a repetition found what the same update found step by step, loss and norm; if not, nothing is repeated any more. The batch is
    /// another than the one that was recorded: what was not told anew would be seen.
    pub(crate) fn compare(&mut self, form: &Form, done: [f64; 2], repeated: Result<[f64; 2], Error>) -> bool {
        // What is not a number is near nothing.
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= FAR * a.abs();
        let why = match repeated {
            Ok(repeated) if done.iter().zip(&repeated).all(near) => {
                self.recorded.get_mut(form).into_iter().for_each(|recorded| recorded.trusted = true);
                return true;
            }
            Ok(repeated) => format!("loss and norm were {done:?}, repeated {repeated:?}"),
            Err(why) => why.to_string(),
        };
        self.recorded.clear();
        self.gave_up = Some(why);
        false
    }

    /// What the same update found when it was done step by step again, after its repetition had found something else: it stands beside why
    /// nothing is repeated any more.
    pub(crate) fn once_more(&mut self, found: Result<[f64; 2], Error>) {
        if let (Some(why), Ok(found)) = (&mut self.gave_up, found) {
            why.push_str(&format!(", step by step once more {found:?}"));
        }
    }
}

#[cfg(test)]
mod comparing {
    use super::*;

    const FORM: Form = Form { count: 4, length: 8, types: false, full: true, phase: 0 };

    #[test]
    fn a_repetition_is_as_good_as_what_it_finds() {
        let agrees = |done: [f64; 2], repeated: [f64; 2]| {
            let mut recorder = Recorder::default();
            let agrees = recorder.compare(&FORM, done, Ok(repeated));
            assert_eq!(agrees, recorder.gave_up().is_none());
            agrees
        };
        assert!(agrees([0.7, 2.0], [0.7, 2.0]) && agrees([0.7, 2.0], [0.703, 1.99]));
        assert!(!agrees([0.7, 2.0], [0.7, 2.1]) && !agrees([0.7, 2.0], [0.6, 2.0]));
        for wrong in [f64::NAN, f64::INFINITY] {
            assert!(!agrees([0.7, 2.0], [wrong, 2.0]) && !agrees([0.7, 2.0], [0.7, wrong]));
        }
    }

    #[test]
    fn what_cannot_be_repeated_is_no_error_and_the_reason_is_kept() {
        let mut recorder = Recorder::default();
        assert!(!recorder.compare(&FORM, [0.7, 2.0], Err(Error::new("the device is full"))));
        assert_eq!(recorder.gave_up(), Some("the device is full"));
        // That no other form may be recorded says nothing about this one.
        assert!(recorder.compare(&FORM, [0.7, 2.0], Ok([0.7, 2.0])));
    }

    #[test]
    fn whether_an_update_differs_from_itself_stands_beside_the_reason() {
        let mut recorder = Recorder::default();
        recorder.once_more(Ok([0.7, 2.0]));
        assert_eq!(recorder.gave_up(), None);
        recorder.compare(&FORM, [0.7, 2.0], Ok([0.7, 2.5]));
        recorder.once_more(Ok([0.7, 2.4]));
        let why = "loss and norm were [0.7, 2.0], repeated [0.7, 2.5], step by step once more [0.7, 2.4]";
        assert_eq!(recorder.gave_up(), Some(why));
    }
}
