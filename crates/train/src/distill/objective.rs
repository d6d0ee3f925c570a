//! What a student is taught: the losses between two networks on the same batch.

use super::Teaching;
use crate::feed::{Form, Moment};
use crate::losses::*;
use crate::network::{Beyond, Guide};
use crate::objective::{Loss, Objective, Pass, head_loss, host_batch, pad};
use crate::pretrain::wanted_rows;
use crate::random::Random;
use crate::{Capture, Encoded, Example, Forward, LinearHook, Masking, Mode, Network, PaddedBatch};
use crate::{Parameters, Statistics};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use sparing_model::{Error, HeadKind, Sequence};
use std::sync::Arc;

fn projection(layer: usize) -> String {
    format!("distill.projection.{layer}")
}

/// Maps from the student's width to the teacher's, one per hidden state; they are not part of the saved model.
pub(super) fn add_projections(parameters: &mut Parameters, layers: usize, from: usize, to: usize, seed: u64) {
    let scale = 1.0 / (from as f64).sqrt();
    for layer in 0..=layers {
        let mut random = Random::at(seed, &[2, layer as u64]);
        let values = (0..from * to).map(|_| (random.normal() * scale) as f32).collect();
        parameters.insert_values(&projection(layer), values, vec![from, to]);
    }
}

/// What is read.
#[derive(Clone)]
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

/// What a student's layers read.
pub(crate) enum Guidance {
    /// What the layers before have computed.
    None,
    /// For so many updates what the teacher's layers read, all of it in the first half of them, then less and less; afterwards their own
    /// within the teacher's bounds.
    Teacher(u64),
    /// Their own, within these bounds of every channel, `[1, hidden]` for every layer. The teacher is not asked for anything.
    Bounds(Vec<Tensor<2>>),
}

/// The losses between two networks on the same batch.
pub(crate) struct Distilling<'a> {
    pub(crate) student: &'a Network,
    pub(crate) teacher: &'a Network,
    pub(crate) teacher_parameters: Parameters,
    pub(crate) texts: Texts<'a>,
    pub(crate) lengths: Vec<usize>,
    pub(crate) teaching: Teaching,
    /// What the student's layers read.
    pub(crate) guidance: Guidance,
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

    fn recordable(&self, chosen: &[usize], pass: &Pass, device: &Device) -> Result<Option<(Form, Moment)>, Error> {
        let plain = self.student.is_recordable() && self.teacher.is_recordable();
        // Running statistics are put into the parameters.
        if self.hook.is_some() || self.norm_warmup.is_some() || !plain {
            return Ok(None);
        }
        let examples = self.texts.examples(chosen, pass);
        let batch = host_batch(self.limit(), &examples.iter().collect::<Vec<_>>(), device);
        // Which rows are real tokens' is told by the batch, not by its form.
        let compares_rows = self.teaching.logits > 0.0 && self.student.architecture().head.kind == HeadKind::Answer;
        if self.teaching.answers() && (batch.is_of_rows() || compares_rows) {
            return Ok(None);
        }
        self.student.check(&batch)?;
        self.teacher.check(&batch)?;
        let own = self.own(pass.step);
        let form = Form::of(&batch, own.ceil() as u8 + own.floor() as u8);
        Ok(Some((form, Moment { batch: Arc::new(batch), seed: pass.seed, own: own as f32, step: None })))
    }

    fn loss(&self, parameters: &Parameters, chosen: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let t = &self.teaching;
        let examples = self.texts.examples(chosen, pass);
        let chosen: Vec<&Example> = examples.iter().collect();
        let batch = pad(self.limit(), &chosen, parameters.device());
        let capture = Capture { hidden: t.hidden > 0.0, attention: t.attention > 0.0 || t.attention_divergence > 0.0 };
        // Layers may be guided by what is inside the teacher without being compared with it.
        let guides = matches!(self.guidance, Guidance::Teacher(_));
        let taught = Capture { hidden: capture.hidden || guides, ..capture };
        let mode = Mode { capture: taught, bf16: pass.bf16, ..Mode::default() };
        let beyond = Beyond::default();
        let mut own = pass.mode(capture);
        own.statistics = match self.norm_warmup {
            None => Statistics::Fixed,
            Some(updates) if pass.step < updates => Statistics::Batch,
            Some(_) => Statistics::Running,
        };
        let answered = t.answers();
        let mut terms = Vec::new();
        let (found, taught) = match &self.texts {
            Texts::Examples(_) => {
                let taught = match self.guidance {
                    Guidance::Bounds(_) => None,
                    _ => Some(self.teacher.forward(&self.teacher_parameters, &batch, mode)?),
                };
                let guide = self.guide(pass.step, taught.as_ref().map_or(&[], |taught| &taught.hidden), &beyond);
                let found = self.student.forward_guided(parameters, &batch, own, self.hook, guide)?;
                if t.hard > 0.0 {
                    terms.push(head_loss(found.output.clone(), &batch)?.mul_scalar(t.hard));
                }
                let Some(taught) = taught else { return total(terms, &beyond, &batch) };
                if answered {
                    let kind = self.student.architecture().head.kind;
                    let choices = [&found, &taught].map(|forward| choices(forward.output.clone(), kind, &batch));
                    self.softened(choices, &mut terms)?;
                    if t.logits > 0.0 {
                        let [mine, theirs] = [&found, &taught].map(|forward| real_rows(forward.output.clone(), &batch));
                        terms.push(mean_squared(mine, theirs).mul_scalar(t.logits));
                    }
                }
                (Inside::of(found), Inside::of(taught))
            }
            // The vocabulary is the dearest map of all: only hidden words go through it.
            Texts::Pieces(..) => {
                let taught = match self.guidance {
                    Guidance::Bounds(_) => None,
                    _ => Some(self.teacher.encode(&self.teacher_parameters, &batch, mode, None)?),
                };
                let guide = self.guide(pass.step, taught.as_ref().map_or(&[], |taught| &taught.hidden), &beyond);
                let found = self.student.encode_guided(parameters, &batch, own, self.hook, guide)?;
                if answered {
                    let (places, classes) = wanted_rows(&chosen, &batch);
                    let rows = |last: &Tensor<3>| {
                        let [count, length, width] = last.dims();
                        last.clone().reshape([count * length, width]).select(0, indices(&places, &last.device()))
                    };
                    let mine = self.student.head(parameters, rows(&found.last), &batch, own, self.hook)?;
                    if t.hard > 0.0 {
                        let classes = indices(&classes, &mine.device());
                        terms.push(cross_entropy(mine.clone(), classes).mul_scalar(t.hard));
                    }
                    if let Some(taught) = &taught {
                        let last = rows(&taught.last);
                        let theirs = self.teacher.head(&self.teacher_parameters, last, &batch, mode, None)?;
                        if t.logits > 0.0 {
                            terms.push(mean_squared(mine.clone(), theirs.clone()).mul_scalar(t.logits));
                        }
                        self.softened([mine, theirs], &mut terms)?;
                    }
                }
                let Some(taught) = taught else { return total(terms, &beyond, &batch) };
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
        total(terms, &beyond, &batch)
    }
}

/// The sum of all losses, and of what lay beyond bounds, which alone teaches nothing.
fn total(terms: Vec<Tensor<1>>, beyond: &Beyond, batch: &PaddedBatch) -> Result<Loss, Error> {
    let value = terms.into_iter().reduce(|a, b| a + b);
    let value = value.ok_or_else(|| Error::new("nothing is taught: all losses have weight 0"))?;
    let value = beyond.sum().into_iter().fold(value, |a, b| a + b);
    Ok(Loss { value, tokens: batch.tokens() })
}

impl Distilling<'_> {
    /// The longest text that both networks take.
    fn limit(&self) -> Option<usize> {
        [self.student, self.teacher].iter().filter_map(|network| network.architecture().longest_input()).min()
    }

    /// What layers read at this update; `None`: what the layers before have computed.
    fn guide<'h>(&'h self, step: u64, hidden: &'h [Tensor<3>], beyond: &'h Beyond) -> Option<Guide<'h>> {
        match &self.guidance {
            Guidance::None => None,
            Guidance::Teacher(_) => Some(Guide::Teacher { hidden, own: self.own(step) }),
            Guidance::Bounds(most) => Some(Guide::Bounds { most, beyond }),
        }
    }

    /// The share of their own that layers read at this update.
    fn own(&self, step: u64) -> f64 {
        match self.guidance {
            Guidance::Teacher(updates) if updates > 0 => {
                let half = updates as f64 / 2.0;
                ((step as f64 - half) / half).clamp(0.0, 1.0)
            }
            _ => 1.0,
        }
    }

    /// Losses between answers, rows of alternatives.
    fn softened(&self, [mine, theirs]: [Tensor<2>; 2], terms: &mut Vec<Tensor<1>>) -> Result<(), Error> {
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
            terms.push(soft_divergence(mine, theirs, t.temperature).mul_scalar(t.divergence));
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

/// What a head chooses among, a row of logits for every choice: labels; for an answer's first and last token all tokens of the text; for each
/// of many labels yes and no.
fn choices(output: Tensor<3>, kind: HeadKind, batch: &PaddedBatch) -> Tensor<2> {
    let [count, rows, width] = output.dims();
    match kind {
        HeadKind::Answer => {
            let absent = batch.mask.clone().bool_not().reshape([count, 1, rows]).expand([count, width, rows]);
            output.swap_dims(1, 2).mask_fill(absent, -1e4).reshape([count * width, rows])
        }
        HeadKind::MultiLabel => {
            let yes = output.reshape([count * rows * width, 1]);
            Tensor::cat(vec![yes.zeros_like(), yes], 1)
        }
        _ => real_rows(output, batch),
    }
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
    use super::*;
    use crate::Mapping;
    use sparing_model::{Functions, Model, SoftmaxNetwork};
    use std::path::Path;

    /// Labels alone on plain text, where labels are the hidden words: what lies beyond bounds is a loss there too, and no loss of its own.
    #[test]
    fn on_plain_text_too_what_lies_beyond_bounds_is_a_loss() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/bert-mlm-text");
        let teacher = Model::load(&path).unwrap();
        let functions = Functions::all(SoftmaxNetwork { tokens: 16, shared: false, keys: None });
        let fill = &mut |name: &str, shape: &[usize]| {
            let value = if name.ends_with("running_phi") { 1.0 } else { 0.01 };
            vec![value; shape.iter().product()]
        };
        let student = teacher.with_functions(&functions, fill).unwrap();
        let (device, layers) = (Device::flex(), student.architecture.layers.len());
        let parameters = Parameters::from_weights(&student.weights, &device.clone().autodiff()).unwrap();
        let pieces: Vec<Sequence> = (0..4).map(|i| Sequence { ids: (90..102 + i).collect(), types: vec![] }).collect();
        let masking = Masking::new(teacher.tokenizer().unwrap()).unwrap();
        let loss = |hard: f64, bound: f32| {
            let objective = Distilling {
                student: &Network::new(&student.architecture),
                teacher: &Network::new(&teacher.architecture),
                teacher_parameters: Parameters::from_weights(&teacher.weights, &device).unwrap(),
                texts: Texts::Pieces(&pieces, &masking),
                lengths: pieces.iter().map(|piece| piece.ids.len()).collect(),
                teaching: Teaching {
                    hard,
                    soft: 0.0,
                    divergence: 0.0,
                    temperature: 15.0,
                    logits: 0.0,
                    hidden: 0.0,
                    attention: 0.0,
                    attention_divergence: 0.0,
                    mapping: Mapping::Uniform,
                },
                guidance: Guidance::Bounds(vec![
                    Tensor::full([1, student.architecture.hidden], bound, &device);
                    layers
                ]),
                norm_warmup: None,
                hook: None,
            };
            let pass = Pass { seed: 3, epoch: 0, step: 0, dropout: 0.0, bf16: false };
            objective.loss(&parameters, &[0, 1, 2, 3], &pass).map(|loss| loss.value)
        };
        // So little of the labels that they are nothing beside the rest.
        let [wide, narrow] = [1e6, 1e-2].map(|bound| loss(1e-6, bound).unwrap());
        let number = |x: &Tensor<1>| x.clone().into_scalar::<f32>();
        assert!(number(&wide) < 1e-4 && number(&narrow) > 1.0, "{} {}", number(&wide), number(&narrow));
        let word = &parameters.get(&student.architecture.embeddings.word).unwrap().value;
        let slope = word.grad(&narrow.backward()).unwrap().abs().max().into_scalar::<f32>();
        assert!(slope > 1e-3, "{slope}");
        let message = loss(0.0, 1e-2).expect_err("refused").to_string();
        assert!(message.contains("nothing is taught"), "{message}");
    }

    fn rows(output: Tensor<3>, kind: HeadKind, lengths: &[usize]) -> Vec<Vec<f32>> {
        let sequences: Vec<Sequence> = lengths.iter().map(|n| Sequence { ids: vec![1; *n], types: vec![] }).collect();
        let batch = PaddedBatch::new(&sequences, 3, &output.device());
        let found = choices(output, kind, &batch);
        let width = found.dims()[1];
        let values = found.into_data().try_to_vec::<f32>().unwrap();
        values.chunks(width).map(<[f32]>::to_vec).collect()
    }

    #[test]
    fn every_head_has_its_own_choices() {
        let device = Device::flex();
        // Two texts of three and two tokens, start and end of an answer for each token.
        let answer = Tensor::from_data(
            [[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], [[4.0, 40.0], [5.0, 50.0], [6.0, 60.0]]],
            &device,
        );
        let starts_and_ends =
            [vec![1.0, 2.0, 3.0], vec![10.0, 20.0, 30.0], vec![4.0, 5.0, -1e4], vec![40.0, 50.0, -1e4]];
        assert_eq!(rows(answer.clone(), HeadKind::Answer, &[3, 2]), starts_and_ends);
        let labels = Tensor::from_data([[[1.0, -2.0]], [[3.0, 4.0]]], &device);
        let yes_or_no = [vec![0.0, 1.0], vec![0.0, -2.0], vec![0.0, 3.0], vec![0.0, 4.0]];
        assert_eq!(rows(labels.clone(), HeadKind::MultiLabel, &[3, 2]), yes_or_no);
        assert_eq!(rows(labels, HeadKind::Classify, &[3, 2]), [vec![1.0, -2.0], vec![3.0, 4.0]]);
        // Tags: real tokens only.
        assert_eq!(rows(answer, HeadKind::TokenClassify, &[3, 2]).len(), 5);
    }
}
