//! Distillation: a student learns from what a teacher computes, not only from labels.

use crate::economy::Economy;
use crate::losses::*;
use crate::network::Guide;
use crate::objective::{Loss, Objective, Pass, head_loss, lengths, pad};
use crate::pretrain::wanted_rows;
use crate::random::Random;
use crate::session::{Place, Session, subject};
use crate::trainer::{Event, TrainOptions};
use crate::{Capture, Encoded, Example, FakeQuantization, Forward, LinearHook, Masking, Mode, Network, PaddedBatch};
use crate::{Parameters, Prepared, Rounding, Statistics, Summary, examples};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use serde::Serialize;
use sparing_model::{AttentionPlan, Error, Model, Sequence};
use sparing_tasks::Dataset;

/// Which teacher layer a student's layer learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapping {
    /// Spread evenly: of twelve layers, the fourth, eighth and twelfth for three.
    Uniform,
    /// The teacher's last ones.
    Last,
}

impl Mapping {
    /// The teacher's layer (from 1 to `teacher`) for the student's layer (from 1 to `student`); 0, the embeddings, for 0.
    pub fn layer(self, layer: usize, student: usize, teacher: usize) -> usize {
        match (layer, self) {
            (0, _) => 0,
            (_, Mapping::Uniform) => (layer * teacher + student / 2) / student.max(1),
            (_, Mapping::Last) => (teacher + layer).saturating_sub(student).clamp(1, teacher.max(1)),
        }
    }
}

/// Weights of the losses; those with weight 0 are not computed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Teaching {
    /// The labels' own loss.
    pub hard: f64,
    /// Cross-entropy with the teacher's softened answers.
    pub soft: f64,
    /// The same as divergence.
    pub divergence: f64,
    /// Softens answers.
    pub temperature: f64,
    /// Squared difference of logits.
    pub logits: f64,
    /// Squared difference of hidden states, embeddings included; through a learned map where widths differ.
    pub hidden: f64,
    /// Squared difference of attention probabilities.
    pub attention: f64,
    /// Divergence of attention probabilities.
    pub attention_divergence: f64,
    /// Who learns from whom.
    pub mapping: Mapping,
}

/// Teacher, student, data and how.
pub struct Distill<'a> {
    /// The teacher, with the head whose answers are taught.
    pub teacher: &'a Model,
    /// The student, whose tokens must be the teacher's.
    pub student: Prepared,
    /// Where the student's numbers come from.
    pub origin: &'a Model,
    /// To learn from.
    pub train: &'a Dataset,
    /// To choose the best model by.
    pub dev: Option<&'a Dataset>,
    /// What is taught.
    pub teaching: Teaching,
    /// How.
    pub options: TrainOptions,
    /// One training each.
    pub seeds: Vec<u64>,
    /// Texts are cut to this many tokens.
    pub max_tokens: Option<usize>,
    /// Train the student with attention economised so; `None`: as the origin's plan says. The teacher is exact.
    pub attention: Option<AttentionPlan>,
    /// Train with numbers rounded as the engine will round them.
    pub quantization: Option<Rounding>,
    /// Where to compute.
    pub device: Device,
    /// Where to write.
    pub place: Place,
}

impl Distill<'_> {
    /// Trains with every seed. `watch` gets the seed's number in the list and the event; false asks to stop.
    pub fn run(&self, watch: &mut dyn FnMut(usize, &Event) -> bool) -> Result<Summary, Error> {
        let (student, teacher) = (&self.student.architecture, &self.teacher.architecture);
        if student.embeddings.vocabulary != teacher.embeddings.vocabulary {
            return Err(Error::new(format!(
                "the student knows {} tokens, the teacher {}: they must share one tokenizer",
                student.embeddings.vocabulary, teacher.embeddings.vocabulary
            )));
        }
        if student.head.kind != teacher.head.kind || student.head.labels.len() != teacher.head.labels.len() {
            return Err(Error::new(
                "student and teacher have different heads; fine-tune the teacher on this task first",
            ));
        }
        let mut notes = self.train.notes.clone();
        let tokenizer = self.teacher.tokenizer()?;
        let examples = examples(self.train, tokenizer, student, self.max_tokens, &mut notes)?;
        let device = self.device.clone();
        let rounding = |r| FakeQuantization::new(r, student, &device);
        let quantization = self.quantization.as_ref().map(rounding).transpose()?;
        let economy = Economy::new(self.attention.as_ref(), self.origin, &examples);
        let objective = Distilling {
            student: &economy.network(&self.student, self.origin, self.quantization.as_ref())?,
            teacher: &Network::new(teacher),
            teacher_parameters: Parameters::from_weights(&self.teacher.weights, &device)?,
            lengths: lengths(&examples),
            texts: Texts::Examples(&examples),
            teaching: self.teaching,
            guided: None,
            norm_warmup: Some(0),
            hook: quantization.as_ref().map(|q| q as &dyn LinearHook),
        };
        let session = Session {
            prepared: &self.student,
            tokenizer,
            dev: self.dev,
            max_tokens: self.max_tokens,
            quantization: quantization.as_ref(),
            economy: &economy,
            masks: None,
            place: &self.place,
            seeds: self.seeds.len(),
            title: format!("Distillation on {}", self.train.task.name()),
        };
        let make = |seed: u64| {
            let device = device.clone().autodiff();
            let (mut parameters, fresh) = self.student.parameters(&self.origin.weights, seed, &device)?;
            if self.teaching.hidden > 0.0 && student.hidden != teacher.hidden {
                add_projections(&mut parameters, student.layers.len(), student.hidden, teacher.hidden, seed);
            }
            Ok((parameters, fresh))
        };
        let options = TrainOptions {
            subject: format!(
                "distil {}, {:?}{}",
                self.train.source,
                self.teaching,
                subject(self.quantization.as_ref(), &economy)
            ),
            ..self.options.clone()
        };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }
}

fn projection(layer: usize) -> String {
    format!("distill.projection.{layer}")
}

/// Maps from the student's width to the teacher's, one per hidden state; they are not part of the saved model.
fn add_projections(parameters: &mut Parameters, layers: usize, from: usize, to: usize, seed: u64) {
    let scale = 1.0 / (from as f64).sqrt();
    for layer in 0..=layers {
        let mut random = Random::at(seed, &[2, layer as u64]);
        let values = (0..from * to).map(|_| (random.normal() * scale) as f32).collect();
        parameters.insert_values(&projection(layer), values, vec![from, to]);
    }
}

/// What is read.
pub(crate) enum Texts<'a> {
    /// Labelled examples.
    Examples(&'a [Example]),
    /// Plain text; other tokens are hidden in every epoch.
    Pieces(&'a [Sequence], &'a Masking),
}

impl Texts<'_> {
    fn examples(&self, chosen: &[usize], pass: &Pass) -> Vec<Example> {
        let example = |&i: &usize| match self {
            Texts::Examples(examples) => examples[i].clone(),
            Texts::Pieces(pieces, masking) => masking.apply(&pieces[i], Random::at(pass.seed, &[i as u64]).bits()),
        };
        chosen.iter().map(example).collect()
    }
}

/// The losses between two networks on the same batch.
pub(crate) struct Distilling<'a> {
    pub(crate) student: &'a Network,
    pub(crate) teacher: &'a Network,
    pub(crate) teacher_parameters: Parameters,
    pub(crate) texts: Texts<'a>,
    pub(crate) lengths: Vec<usize>,
    pub(crate) teaching: Teaching,
    /// Updates in which the student's layers read what the teacher's read, all of it in the first half of them, then less and less;
    /// afterwards their own within the teacher's bounds. `None`: their own, all along.
    pub(crate) guided: Option<u64>,
    /// Updates in which PowerNorm divides by the batch's own statistics, before it follows them; `None`: it keeps those it has.
    pub(crate) norm_warmup: Option<u64>,
    pub(crate) hook: Option<&'a dyn LinearHook>,
}

impl Objective for Distilling<'_> {
    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn hook(&self) -> Option<&dyn LinearHook> {
        self.hook
    }

    fn changed(&self) -> Vec<(String, Tensor<2>)> {
        self.student.changed()
    }

    fn loss(&self, parameters: &Parameters, chosen: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let t = &self.teaching;
        let examples = self.texts.examples(chosen, pass);
        let chosen: Vec<&Example> = examples.iter().collect();
        let batch = pad(self.student, &chosen, parameters.device());
        let capture = Capture { hidden: t.hidden > 0.0, attention: t.attention > 0.0 || t.attention_divergence > 0.0 };
        // Layers may be guided by what is inside the teacher without being compared with it.
        let guides = self.guided.is_some_and(|updates| updates > 0);
        let taught = Capture { hidden: capture.hidden || guides, ..capture };
        let mode = Mode { capture: taught, bf16: pass.bf16, ..Mode::default() };
        let mut own = pass.mode(capture);
        own.statistics = match self.norm_warmup {
            None => Statistics::Fixed,
            Some(updates) if pass.step < updates => Statistics::Batch,
            Some(_) => Statistics::Running,
        };
        let answered = t.hard > 0.0 || t.soft > 0.0 || t.divergence > 0.0 || t.logits > 0.0;
        let mut terms = Vec::new();
        let (found, taught) = match &self.texts {
            Texts::Examples(_) => {
                let taught = self.teacher.forward(&self.teacher_parameters, &batch, mode)?;
                let guide = self.guide(pass.step, &taught.hidden);
                let found = self.student.forward_guided(parameters, &batch, own, self.hook, guide)?;
                if t.hard > 0.0 {
                    terms.push(head_loss(found.output.clone(), &batch, &chosen)?.mul_scalar(t.hard));
                }
                if answered {
                    let rows = [&found, &taught].map(|forward| real_rows(forward.output.clone(), &batch));
                    self.answers(rows, &mut terms)?;
                }
                (Inside::of(found), Inside::of(taught))
            }
            // The vocabulary is the dearest map of all: only hidden words go through it.
            Texts::Pieces(..) => {
                let taught = self.teacher.encode(&self.teacher_parameters, &batch, mode, None)?;
                let guide = self.guide(pass.step, &taught.hidden);
                let found = self.student.encode_guided(parameters, &batch, own, self.hook, guide)?;
                if answered {
                    let (places, classes) = wanted_rows(&chosen, &batch);
                    let rows = |last: &Tensor<3>| {
                        let [count, length, width] = last.dims();
                        last.clone().reshape([count * length, width]).select(0, indices(&places, &last.device()))
                    };
                    let mine = self.student.head(parameters, rows(&found.last), &batch, own, self.hook)?;
                    let theirs = self.teacher.head(&self.teacher_parameters, rows(&taught.last), &batch, mode, None)?;
                    if t.hard > 0.0 {
                        let classes = indices(&classes, &mine.device());
                        terms.push(cross_entropy(mine.clone(), classes).mul_scalar(t.hard));
                    }
                    self.answers([mine, theirs], &mut terms)?;
                }
                (Inside::of_encoded(found), Inside::of_encoded(taught))
            }
        };
        if t.hidden > 0.0 {
            terms.push(self.hidden(parameters, found.hidden, &taught.hidden, &found.present)?.mul_scalar(t.hidden));
        }
        let layers = (found.attention.len(), taught.attention.len());
        for (i, mine) in found.attention.into_iter().enumerate() {
            let theirs = taught.attention[t.mapping.layer(i + 1, layers.0, layers.1) - 1].clone();
            // A layer without attention neither teaches nor learns any.
            let (Some(mine), Some(theirs)) = (mine, theirs) else { continue };
            let (mine, theirs) = same_heads(mine, theirs);
            let present = found.present[i].clone();
            let share = 1.0 / layers.0 as f64;
            if t.attention > 0.0 {
                let loss = attention_mean_squared(mine.clone(), theirs.clone(), present.clone());
                terms.push(loss.mul_scalar(t.attention * share));
            }
            if t.attention_divergence > 0.0 {
                let loss = attention_divergence(mine, theirs, present);
                terms.push(loss.mul_scalar(t.attention_divergence * share));
            }
        }
        let value = terms.into_iter().reduce(|a, b| a + b);
        let value = value.ok_or_else(|| Error::new("nothing is taught: all losses have weight 0"))?;
        Ok(Loss { value, tokens: batch.tokens() })
    }
}

impl Distilling<'_> {
    /// What layers read at this update; `None`: what the layers before have computed.
    fn guide<'h>(&self, step: u64, hidden: &'h [Tensor<3>]) -> Option<Guide<'h>> {
        let half = self.guided? as f64 / 2.0;
        let own = ((step as f64 - half) / half.max(1.0)).clamp(0.0, 1.0);
        (!hidden.is_empty()).then_some(Guide { hidden, own })
    }

    /// Losses between answers.
    fn answers(&self, [mine, theirs]: [Tensor<2>; 2], terms: &mut Vec<Tensor<1>>) -> Result<(), Error> {
        let t = &self.teaching;
        if mine.dims()[1] == 1 && (t.soft > 0.0 || t.divergence > 0.0) {
            return Err(Error::new(
                "a single number has no soft targets; teach it with the squared difference of logits",
            ));
        }
        if t.soft > 0.0 {
            terms.push(soft_cross_entropy(mine.clone(), theirs.clone(), t.temperature).mul_scalar(t.soft));
        }
        if t.divergence > 0.0 {
            terms.push(soft_divergence(mine.clone(), theirs.clone(), t.temperature).mul_scalar(t.divergence));
        }
        if t.logits > 0.0 {
            terms.push(mean_squared(mine, theirs).mul_scalar(t.logits));
        }
        Ok(())
    }

    /// Mean over the student's hidden states, of tokens that it has not dropped.
    fn hidden(
        &self,
        parameters: &Parameters,
        mine: Vec<Tensor<3>>,
        theirs: &[Tensor<3>],
        present: &[Tensor<2, Bool>],
    ) -> Result<Tensor<1>, Error> {
        let (layers, teacher_layers) = (mine.len() - 1, theirs.len() - 1);
        let count = mine.len() as f64;
        let mut sum: Option<Tensor<1>> = None;
        for (i, (mut state, present)) in mine.into_iter().zip(present).enumerate() {
            let target = theirs[self.teaching.mapping.layer(i, layers, teacher_layers)].clone();
            let [batches, length, width] = state.dims();
            let wanted = target.dims()[2];
            if width != wanted {
                let map = parameters.get(&projection(i))?.value.clone();
                state = state.reshape([batches * length, width]).matmul(map).reshape([batches, length, wanted]);
            }
            let loss = masked_mean_squared(state, target, present.clone());
            sum = Some(sum.map_or(loss.clone(), |s| s + loss));
        }
        let sum = sum.ok_or_else(|| Error::new("there are no hidden states to learn from"))?;
        Ok(sum.div_scalar(count))
    }
}

/// What is between embeddings and head.
struct Inside {
    hidden: Vec<Tensor<3>>,
    attention: Vec<Option<Tensor<4>>>,
    present: Vec<Tensor<2, Bool>>,
}

impl Inside {
    fn of(Forward { hidden, attention, present, .. }: Forward) -> Inside {
        Inside { hidden, attention, present }
    }

    fn of_encoded(Encoded { hidden, attention, present, .. }: Encoded) -> Inside {
        Inside { hidden, attention, present }
    }
}

/// Numbers of rows, or classes, on a device.
fn indices(values: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Rows of real tokens `[rows, outputs]`; all rows of a sequence head.
fn real_rows(output: Tensor<3>, batch: &PaddedBatch) -> Tensor<2> {
    let [count, rows, width] = output.dims();
    let device = output.device();
    let flat = output.reshape([count * rows, width]);
    if rows != batch.length || rows == 1 {
        return flat;
    }
    let places: Vec<i32> = batch
        .lengths
        .iter()
        .enumerate()
        .flat_map(|(i, n)| (0..*n).map(move |r| (i, r)))
        .map(|(i, r)| batch.row(i, r) as i32)
        .collect();
    let length = places.len();
    flat.select(0, Tensor::<1, Int>::from_data(TensorData::new(places, [length]), &device))
}

/// Different numbers of heads are compared by their mean.
fn same_heads(mine: Tensor<4>, theirs: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
    if mine.dims()[1] == theirs.dims()[1] { (mine, theirs) } else { (mine.mean_dim(1), theirs.mean_dim(1)) }
}

#[cfg(test)]
mod tests {
    use super::Mapping;

    #[test]
    fn layers_are_mapped_evenly_or_from_the_top() {
        let all = |mapping: Mapping, student, teacher| -> Vec<usize> {
            (0..=student).map(|i| mapping.layer(i, student, teacher)).collect()
        };
        assert_eq!(all(Mapping::Uniform, 3, 12), [0, 4, 8, 12]);
        assert_eq!(all(Mapping::Uniform, 4, 6), [0, 2, 3, 5, 6]);
        assert_eq!(all(Mapping::Uniform, 6, 6), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(all(Mapping::Last, 3, 12), [0, 10, 11, 12]);
        // More layers than the teacher has.
        assert_eq!(all(Mapping::Uniform, 4, 2), [0, 1, 1, 2, 2]);
        assert_eq!(all(Mapping::Last, 4, 2), [0, 1, 1, 1, 2]);
    }
}
