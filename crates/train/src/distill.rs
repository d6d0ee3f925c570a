//! Distillation: a student learns from what a teacher computes, not only from labels.

mod objective;

use crate::economy::Economy;
use crate::objective::lengths;
use crate::session::{Session, begun, subject};
use crate::trainer::{Event, TrainOptions};
use crate::{FakeQuantization, LinearHook, Network, Parameters, Place, Prepared, Rounding, Summary, examples};
use burn::tensor::Device;
use objective::add_projections;
pub(crate) use objective::{Distilling, Guidance, Texts};
use serde::Serialize;
use sparing_model::{AttentionPlan, Error, Model};
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

impl Teaching {
    /// Whether anything but labels is taught.
    pub(crate) fn asks_teacher(&self) -> bool {
        let Teaching { soft, divergence, logits, hidden, attention, attention_divergence, .. } = *self;
        [soft, divergence, logits, hidden, attention, attention_divergence].iter().any(|weight| *weight > 0.0)
    }

    /// Whether answers are taught, right ones or the teacher's.
    fn answers(&self) -> bool {
        let Teaching { hard, soft, divergence, logits, .. } = *self;
        [hard, soft, divergence, logits].iter().any(|weight| *weight > 0.0)
    }
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
        let wanted = [self.max_tokens, student.longest_input()].into_iter().flatten().min();
        let limit = [wanted, teacher.longest_input()].into_iter().flatten().min();
        if let Some(limit) = limit.filter(|_| limit != wanted) {
            notes.push(format!("texts to learn from are cut to {limit} tokens: the teacher takes no more"));
        }
        let examples = examples(self.train, tokenizer, student, limit, &mut notes)?;
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
            guidance: Guidance::None,
            norm_warmup: None,
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
                "distil {} to {} on {}, {:?}{}",
                begun(self.teacher, self.max_tokens)?,
                begun(self.origin, None)?,
                self.train.source,
                self.teaching,
                subject(self.quantization.as_ref(), &economy)
            ),
            ..self.options.clone()
        };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }
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
