//! Knowledge transfer (MA-BERT, Neo et al. 2023): a student whose functions are replaced learns from the model it was made of,
//! layer by layer, on plain text or on a task.

mod begin;
mod bounds;

use crate::corpus::pieces;
use crate::distill::{Distilling, Guidance, Teaching, Texts};
use crate::economy::Economy;
use crate::inventory::inventory;
use crate::objective::lengths;
use crate::session::{Session, begun};
use crate::student::choice;
use crate::trainer::{Event, TrainOptions};
use crate::{Masking, Network, Parameters, Place, Prepared, Summary, examples};
pub use begin::Beginning;
use burn::tensor::Device;
use sparing_model::{Error, Functions, HeadKind, Model, Sequence};
use sparing_tasks::Dataset;

/// Whether a number means the same word to a student and to its teacher.
pub fn same_words(student: &Model, teacher: &Model) -> Result<(), Error> {
    let [own, other] = [student, teacher].map(|model| model.architecture.embeddings.vocabulary);
    if own != other {
        return Err(Error::new(format!(
            "the student has {own} words, the teacher {other}: they must share one vocabulary"
        )));
    }
    if let (Ok(own), Ok(other)) = (student.tokenizer(), teacher.tokenizer())
        && let Some(id) = (0..own.vocabulary() as u32).find(|id| own.token(*id) != other.token(*id))
    {
        let [own, other] = [own, other].map(|tokenizer| tokenizer.token(id).unwrap_or_default());
        return Err(Error::new(format!(
            "token {id} is \"{own}\" to the student and \"{other}\" to the teacher: they must share one vocabulary"
        )));
    }
    Ok(())
}

/// What is read.
#[derive(Clone, Copy)]
pub enum TransferTexts<'a> {
    /// A task's examples.
    Task {
        /// To learn from.
        train: &'a Dataset,
        /// To choose the best model by.
        dev: &'a Dataset,
    },
    /// Plain text: words are hidden. A teacher that fills masks teaches its answers too, any other what is inside.
    Corpus {
        /// Documents.
        documents: &'a [String],
        /// A task or text to choose the best model by.
        dev: Option<&'a Dataset>,
    },
}

/// Teacher, student, texts and how.
pub struct Transfer<'a> {
    /// The teacher, with the head whose answers are taught.
    pub teacher: &'a Model,
    /// Begin with this model, which was made by a transfer before; `None`: in the teacher's image.
    pub student: Option<&'a Model>,
    /// What stands in the place of functions.
    pub functions: Functions,
    /// What is read.
    pub texts: TransferTexts<'a>,
    /// What is taught.
    pub teaching: Teaching,
    /// Updates in which layers read what the teacher's layers read, wholly in the first half of them, then less and less, so that
    /// mistakes do not add up before every layer is good: a share of all below 1, else their number. Afterwards their own, within
    /// bounds that are the teacher's. Where nothing is taught but labels, bounds are measured once and the teacher is not asked again.
    pub guided: f64,
    /// Updates in which PowerNorm divides by the batch's own statistics, before running ones: a share of all below 1, else their
    /// number. `None`: it divides by what was measured at the beginning.
    pub norm_warmup: Option<f64>,
    /// How a student in the teacher's image begins.
    pub beginning: Beginning,
    /// How.
    pub options: TrainOptions,
    /// One training each.
    pub seeds: Vec<u64>,
    /// Texts are cut to this many tokens.
    pub max_tokens: usize,
    /// Where to compute.
    pub device: Device,
    /// Where to write.
    pub place: Place,
}

impl Transfer<'_> {
    /// Trains with every seed. `watch` gets the seed's number in the list and the event; false asks to stop.
    pub fn run(&self, watch: &mut dyn FnMut(usize, &Event) -> bool) -> Result<Summary, Error> {
        let prepared = Prepared::replaced(self.teacher, &self.functions)?;
        let idle = self.functions.idle(&self.teacher.architecture)?;
        if self.student.is_none() && idle.len() == self.functions.count() {
            return Err(Error::new(format!("the student would be the teacher: {}", idle.join("; "))));
        }
        let mut notes: Vec<String> = idle.iter().map(|why| why.to_string()).collect();
        let architecture = &prepared.architecture;
        if let Some(student) = self.student {
            self.check(student)?;
        }
        let tokenizer = self.teacher.tokenizer()?;
        let most = architecture.longest_input().map_or(self.max_tokens, |n| n.min(self.max_tokens));
        let (read, found, masking, dev, title, source);
        let texts = match self.texts {
            TransferTexts::Task { train, dev: judge } => {
                choice(self.teacher.architecture.head.kind)?;
                notes.extend(train.notes.clone());
                read = examples(train, tokenizer, architecture, Some(most), &mut notes)?;
                (dev, title, source) =
                    (Some(judge), format!("Transfer on {}", train.task.name()), train.source.to_string());
                Texts::Examples(&read)
            }
            TransferTexts::Corpus { documents, dev: judge } => {
                if architecture.layers.iter().any(|layer| layer.attention.causal) {
                    return Err(Error::new(
                        "plain text (--corpus) is for teachers that read both ways, since words are hidden in it, and this one sees earlier \
                         words only; fine-tune it on a task and give that (--task, --data)",
                    ));
                }
                found = pieces(tokenizer, documents, most, false)?;
                masking = Masking::new(tokenizer)?;
                let size: usize = documents.iter().map(String::len).sum();
                (dev, title, source) =
                    (judge, "Transfer on plain text".to_string(), format!("{size} bytes of plain text"));
                notes.push(format!("{} pieces of at most {most} tokens", found.len()));
                Texts::Pieces(&found, &masking)
            }
        };
        let sequences: Vec<Sequence> = match &texts {
            Texts::Examples(examples) => examples.iter().map(|example| example.sequence.clone()).collect(),
            Texts::Pieces(pieces, _) => pieces.to_vec(),
        };
        let lengths = match &texts {
            Texts::Examples(examples) => lengths(examples),
            Texts::Pieces(pieces, _) => pieces.iter().map(|piece| piece.ids.len()).collect(),
        };
        let teaching = self.taught(&texts, &mut notes);
        let per_epoch =
            lengths.len().div_ceil(self.options.batch.max(1)).div_ceil(self.options.accumulate.max(1)) as u64;
        let updates = self.options.steps.unwrap_or(per_epoch * self.options.epochs);
        if self.guided >= 1.0 && self.guided >= updates as f64 {
            return Err(Error::new(format!(
                "--guided {}: there are {updates} updates, so layers would never read their own; give fewer, or a share such as 0.5",
                self.guided
            )));
        }
        let part = |of: f64| if of < 1.0 { (of * updates as f64).ceil() as u64 } else { of as u64 };
        let teacher = Network::new(&self.teacher.architecture);
        let teacher_parameters = Parameters::from_weights(&self.teacher.weights, &self.device)?;
        let guidance = match part(self.guided) {
            0 if !teaching.asks_teacher() => {
                Guidance::Bounds(bounds::bounds(&teacher, &teacher_parameters, &sequences)?)
            }
            updates => Guidance::Teacher(updates),
        };
        let objective = Distilling {
            student: &Network::new(architecture),
            teacher: &teacher,
            teacher_parameters,
            texts,
            lengths,
            teaching,
            guidance,
            norm_warmup: self.norm_warmup.map(part),
            hook: None,
        };
        let session = Session {
            prepared: &prepared,
            tokenizer,
            dev,
            max_tokens: Some(most),
            quantization: None,
            economy: &Economy::default(),
            masks: None,
            place: &self.place,
            seeds: self.seeds.len(),
            title,
        };
        let device = self.device.clone().autodiff();
        let make = |seed: u64| -> Result<(Parameters, Vec<String>), Error> {
            let (mut parameters, fresh) = prepared.parameters(&self.teacher.weights, seed, &device)?;
            let Some(student) = self.student else {
                let teacher = (&teacher, &objective.teacher_parameters);
                self.beginning.begin(architecture, &mut parameters, teacher, &sequences, seed)?;
                return Ok((parameters, vec![]));
            };
            // The head is the teacher's, everything else the student's.
            let head = architecture.layers.len() + 1;
            for entry in inventory(architecture).into_iter().filter(|entry| entry.depth < head) {
                let tensor = student.weights.tensor(&entry.name)?;
                let wanted = &parameters.get(&entry.name)?.shape;
                if tensor.shape != *wanted {
                    return Err(Error::new(format!(
                        "tensor \"{}\" is {:?} in the student and {wanted:?} in the teacher: they must be alike",
                        entry.name, tensor.shape
                    )));
                }
                let mut values = vec![0.0; tensor.len()];
                tensor.read(0, &mut values);
                parameters.insert_values(&entry.name, values, tensor.shape.to_vec());
            }
            parameters.add_statistics(architecture);
            Ok((parameters, fresh.into_iter().filter(|name| !student.weights.contains(name)).collect()))
        };
        let begins = match self.student {
            Some(student) => format!("going on with {}", begun(student, None)?),
            None => format!("{:?}", self.beginning),
        };
        let subject = format!(
            "transfer {:?}, {teaching:?}, from {}, {begins}, on {source} of at most {most} tokens, guided {}, norms {:?}",
            self.functions,
            begun(self.teacher, None)?,
            self.guided,
            self.norm_warmup
        );
        let options = TrainOptions { subject, ..self.options.clone() };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }

    /// Whether a student can go on with this teacher.
    fn check(&self, student: &Model) -> Result<(), Error> {
        let (mine, theirs) = (&student.architecture, &self.teacher.architecture);
        let of = |name: &str, a: usize, b: usize| match a == b {
            true => Ok(()),
            false => Err(Error::new(format!(
                "the student has {a} {name}, the teacher {b}: transfer goes layer by layer, so they must be equal"
            ))),
        };
        same_words(student, self.teacher)?;
        of("layers", mine.layers.len(), theirs.layers.len())?;
        of("numbers per token", mine.hidden, theirs.hidden)?;
        for (own, other) in mine.layers.iter().zip(&theirs.layers) {
            of("heads", own.attention.heads, other.attention.heads)?;
        }
        match &student.plan.functions {
            Some(functions) if *functions == self.functions => Ok(()),
            Some(_) => Err(Error::new(
                "the student has other functions replaced than are asked for; leave --softmax, --linear and --max-tokens as they were",
            )),
            None => Err(Error::new("the student has no functions replaced; begin without --student")),
        }
    }

    /// What can be taught on these texts.
    fn taught(&self, texts: &Texts, notes: &mut Vec<String>) -> Teaching {
        let mut teaching = self.teaching;
        let kind = self.teacher.architecture.head.kind;
        let number = self.teacher.architecture.head.labels.len() <= 1 && kind == HeadKind::Regress;
        match texts {
            Texts::Examples(_) if number && teaching.soft > 0.0 => {
                notes.push("a number has no soft targets: the squared difference of answers is taught".to_string());
                let weight = teaching.soft * teaching.temperature * teaching.temperature;
                (teaching.logits, teaching.soft) = (teaching.logits + weight, 0.0);
            }
            Texts::Pieces(..) if kind != HeadKind::MaskedLm => {
                notes.push("the teacher fills no masks: what is inside of it is taught, not its answers".to_string());
                (teaching.hard, teaching.soft, teaching.divergence, teaching.logits) = (0.0, 0.0, 0.0, 0.0);
            }
            _ => {}
        }
        // Shares of projected keys cannot be compared with the teacher's.
        if self.functions.softmax.is_some_and(|softmax| softmax.keys.is_some()) {
            (teaching.attention, teaching.attention_divergence) = (0.0, 0.0);
        }
        teaching
    }
}
