//! A model to train, made from one that was read: another head, another shape, canonical names.

use crate::inventory::inventory;
use crate::{Parameter, Parameters};
use burn::tensor::Device;
use serde_json::{Map, Value, json};
use sparing_model::{
    Architecture, Elements, Error, Functions, HeadChoice, HeadKind, Model, OwnedTensor, Plan, Weights, write_directory,
};
use sparing_tasks::{Dataset, Label, Task};
use std::collections::BTreeSet;
use std::path::Path;

/// More distinct whole numbers than this are a scale, not labels.
const MOST_NUMBERS: usize = 20;

/// Output matrices of language heads, usually the word table once more.
const DECODERS: [&str; 6] = [
    "cls.predictions.decoder.weight",
    "predictions.decoder.weight",
    "lm_head.decoder.weight",
    "lm_head.weight",
    "vocab_projector.weight",
    "lm_loss.weight",
];

/// What comes out of the model to be trained.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// One of these labels.
    Classify(Vec<String>),
    /// Any of these labels.
    MultiLabel(Vec<String>),
    /// A number.
    Regress,
    /// One of these labels for every word.
    Token(Vec<String>),
    /// A span of the text.
    Answer,
    /// Words for gaps.
    MaskedLm,
    /// The next word.
    CausalLm,
}

impl Wanted {
    /// What a dataset asks for: the task's own labels, or what the user's column holds.
    pub fn for_dataset(dataset: &Dataset, notes: &mut Vec<String>) -> Result<Wanted, Error> {
        let names = |labels: &[&str]| labels.iter().map(|l| l.to_string()).collect();
        match dataset.task {
            Task::Stsb => return Ok(Wanted::Regress),
            Task::Squad | Task::SquadV2 => return Ok(Wanted::Answer),
            Task::Language => return Err(Error::new("texts without labels are for `sparing train pretrain`")),
            Task::Own => {}
            task => return Ok(Wanted::Classify(names(task.labels()))),
        }
        let mut found = BTreeSet::new();
        let mut kind = None;
        for example in &dataset.examples {
            let this = match &example.label {
                Label::None => continue,
                Label::One(text) => {
                    found.insert(text.trim().to_string());
                    "one"
                }
                Label::Many(list) => {
                    found.extend(list.iter().cloned());
                    "many"
                }
                Label::Tags { tags, .. } => {
                    found.extend(tags.iter().cloned());
                    "tags"
                }
                Label::Answers(_) => "answers",
            };
            if *kind.get_or_insert(this) != this {
                return Err(Error::new(format!("{}: labels of different kinds in one column", dataset.at(example))));
            }
        }
        let numbers: Option<Vec<f64>> = found.iter().map(|t| t.parse().ok()).collect();
        let labels = || sorted(&found);
        match (kind, numbers) {
            (None, _) => Err(Error::new(format!("{}: no labels in it (name the column with --label)", dataset.source))),
            (Some("many"), _) => Ok(Wanted::MultiLabel(labels())),
            (Some("tags"), _) => Ok(Wanted::Token(labels())),
            (Some("answers"), _) => Ok(Wanted::Answer),
            (_, Some(n)) if n.len() > MOST_NUMBERS || n.iter().any(|x| x.fract() != 0.0) => {
                notes.push("the labels are numbers: training a model that predicts a number".to_string());
                Ok(Wanted::Regress)
            }
            _ if found.len() < 2 => Err(Error::new(format!("{}: all labels are the same", dataset.source))),
            _ => Ok(Wanted::Classify(labels())),
        }
    }

    /// What a model's own head gives.
    pub fn of(model: &Model) -> Wanted {
        let head = &model.architecture.head;
        let labels = || head.labels.clone();
        match head.kind {
            HeadKind::Classify => Wanted::Classify(labels()),
            HeadKind::MultiLabel => Wanted::MultiLabel(labels()),
            HeadKind::Regress => Wanted::Regress,
            HeadKind::TokenClassify => Wanted::Token(labels()),
            HeadKind::Answer => Wanted::Answer,
            HeadKind::CausalLm => Wanted::CausalLm,
            _ => Wanted::MaskedLm,
        }
    }

    fn labels(&self) -> Option<Vec<String>> {
        match self {
            Wanted::Classify(labels) | Wanted::MultiLabel(labels) | Wanted::Token(labels) => Some(labels.clone()),
            Wanted::Regress => Some(vec!["score".to_string()]),
            _ => None,
        }
    }

    fn kind(&self) -> HeadKind {
        match self {
            Wanted::Classify(_) => HeadKind::Classify,
            Wanted::MultiLabel(_) => HeadKind::MultiLabel,
            Wanted::Regress => HeadKind::Regress,
            Wanted::Token(_) => HeadKind::TokenClassify,
            Wanted::Answer => HeadKind::Answer,
            Wanted::MaskedLm => HeadKind::MaskedLm,
            Wanted::CausalLm => HeadKind::CausalLm,
        }
    }
}

/// By number where all are numbers, else by name.
fn sorted(labels: &BTreeSet<String>) -> Vec<String> {
    let mut list: Vec<String> = labels.iter().cloned().collect();
    let numbers: Option<Vec<f64>> = list.iter().map(|t| t.parse().ok()).collect();
    if numbers.is_some() {
        list.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse::<f64>().unwrap_or(0.0)));
    }
    list
}

/// Gives tensors the form they are to be stored in.
pub type Store<'a> = dyn Fn(Vec<OwnedTensor>) -> Result<Vec<OwnedTensor>, Error> + 'a;

/// A model to train: what it is, and the files that make its directory.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The network with its head.
    pub architecture: Architecture,
    /// `config.json` and the tokenizer's files.
    pub files: Vec<(String, Vec<u8>)>,
    /// Where the tensors come from: the name there, the name here.
    pairs: Vec<(String, String)>,
    /// What is left of the layers, if some were pruned.
    pub(crate) elements: Option<Elements>,
    /// What stands in the place of functions, if anything does.
    pub(crate) functions: Option<Functions>,
    /// Tensors beside the network's that are saved too.
    also: Vec<String>,
}

impl Prepared {
    /// Puts the wanted head on a model. A head that is there and has the wanted labels (or as many, unnamed) stays.
    pub fn new(model: &Model, wanted: &Wanted) -> Result<Prepared, Error> {
        let mut files = model.companions()?;
        let mut config = take_config(&mut files)?;
        adapt(&mut config, wanted, model)?;
        let plan =
            Plan { elements: model.plan.elements.clone(), functions: model.plan.functions.clone(), ..Plan::default() };
        Prepared::from_config(model, config, files, HeadChoice::of(wanted.kind()), plan)
    }

    /// The same from a configuration of one's own (a student of another shape): tensors are taken over where the
    /// network has a place for them at the same position and of the same shape.
    pub(crate) fn from_config(
        model: &Model,
        config: Map<String, Value>,
        mut files: Vec<(String, Vec<u8>)>,
        choice: HeadChoice,
        plan: Plan,
    ) -> Result<Prepared, Error> {
        let mut text = serde_json::to_vec_pretty(&config).map_err(|e| Error::new(format!("config.json: {e}")))?;
        text.push(b'\n');
        // Canonical names: as if the file held nothing but the biases that language heads share.
        let shared = ["cls.predictions.bias", "predictions.bias", "lm_head.bias"];
        let mut architecture = Architecture::from_config(&text, Some(choice), &|name| shared.contains(&name))?;
        // A tied decoder that the file holds all the same is not read: it must stay one with the word table.
        let tied = config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(true);
        let has = |name: &str| model.weights.contains(name) && !(tied && DECODERS.contains(&name));
        let mut source = Architecture::from_config(&text, Some(choice), &has)?;
        if choice == HeadChoice::Embed {
            // How a text becomes one vector is not in config.json.
            files.extend(model.modules()?);
            for architecture in [&mut architecture, &mut source] {
                architecture.head = model.architecture.head.clone();
            }
        } else {
            // Files that would make it a sentence encoder again, whatever its head.
            files.retain(|(name, _)| !name.contains("sentence_") && name != "modules.json");
        }
        // Names are compared one by one: what was pruned keeps its name, what is new has one in both.
        plan.functions.iter().try_for_each(|functions| functions.apply(&mut source))?;
        plan.apply(&mut architecture)?;
        let pairs =
            inventory(&source).into_iter().zip(inventory(&architecture)).map(|(a, b)| (a.name, b.name)).collect();
        files.insert(0, ("config.json".to_string(), text));
        let Plan { elements, functions, .. } = plan;
        Ok(Prepared { architecture, files, pairs, elements, functions, also: vec![] })
    }

    /// The numbers on a device: taken over where name and shape agree, fresh by the seed elsewhere. Also the names of
    /// the fresh ones.
    pub fn parameters(
        &self,
        weights: &Weights,
        seed: u64,
        device: &Device,
    ) -> Result<(Parameters, Vec<String>), Error> {
        let mut parameters = Parameters::random(&self.architecture, seed, device);
        let mut fresh: BTreeSet<String> = parameters.iter().map(|(name, _)| name.to_string()).collect();
        for (there, here) in &self.pairs {
            // What was pruned is named, but not there.
            let Ok(Parameter { shape, .. }) = parameters.get(here).cloned() else { continue };
            if let Ok(tensor) = weights.tensor(there)
                && tensor.shape == shape
            {
                let mut values = vec![0.0; tensor.len()];
                tensor.read(0, &mut values);
                parameters.insert_values(here, values, shape);
                fresh.remove(here);
            }
        }
        parameters.add_statistics(&self.architecture);
        Ok((parameters, fresh.into_iter().collect()))
    }

    /// Says anew where the tensors come from.
    pub(crate) fn set_pairs(&mut self, pairs: Vec<(String, String)>) {
        self.pairs = pairs;
    }

    /// Saves these tensors too, though the network does not name them.
    pub(crate) fn keep_also(&mut self, names: Vec<String>) {
        self.also = names;
    }

    /// Writes a Hugging Face directory; tensors that the network does not name (projections) are left out. `store`: how
    /// tensors are to be stored, else in f32.
    pub fn write(
        &self,
        directory: &Path,
        parameters: &Parameters,
        extra: &[(&str, &[u8])],
        store: Option<&Store<'_>>,
    ) -> Result<(), Error> {
        let names = inventory(&self.architecture).into_iter().map(|e| e.name);
        let names: BTreeSet<String> = names.chain(self.also.iter().cloned()).collect();
        // Modules behind the network have files of their own.
        let folders: Vec<&str> = self.files.iter().filter_map(|(n, _)| n.strip_suffix("/model.safetensors")).collect();
        let beside = |name: &str, folder: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('.'));
        let elsewhere = |name: &str| folders.iter().any(|folder| beside(name, folder));
        let mut tensors = parameters.to_tensors()?;
        tensors.retain(|t| names.contains(&t.name) && !elsewhere(&t.name));
        if let Some(store) = store {
            tensors = store(tensors)?;
        }
        let mut files: Vec<(&str, &[u8])> = self.files.iter().map(|(n, c)| (n.as_str(), c.as_slice())).collect();
        files.extend(extra);
        write_directory(directory, &files, &tensors)
    }
}

/// Takes `config.json` out of the files.
pub(crate) fn take_config(files: &mut Vec<(String, Vec<u8>)>) -> Result<Map<String, Value>, Error> {
    let place = files.iter().position(|(name, _)| name == "config.json");
    let place = place.ok_or_else(|| Error::new("a model made in memory has no config.json to train from"))?;
    let (_, text) = files.remove(place);
    serde_json::from_slice(&text).map_err(|e| Error::new(format!("config.json: {e}")))
}

/// Writes head, labels and problem type into the configuration.
fn adapt(config: &mut Map<String, Value>, wanted: &Wanted, model: &Model) -> Result<(), Error> {
    let text = serde_json::to_vec(&config).map_err(|e| Error::new(format!("config.json: {e}")))?;
    // The head that is there, if it is of the wanted kind with as many labels.
    let there = Architecture::from_config(&text, None, &|name| model.weights.contains(name)).ok().map(|a| a.head);
    let labels = wanted.labels();
    let stays = there.is_some_and(|head| {
        let same = labels.as_ref().is_none_or(|l| {
            let plain = |l: &String| l.trim().to_lowercase().replace([' ', '-'], "_");
            let mut ours: Vec<String> = l.iter().map(plain).collect();
            let mut theirs: Vec<String> = head.labels.iter().map(plain).collect();
            let generic = theirs.iter().enumerate().all(|(i, l)| *l == format!("label_{i}"));
            ours.sort();
            theirs.sort();
            ours.len() == theirs.len() && (generic || ours == theirs || *wanted == Wanted::Regress)
        });
        head.kind == wanted.kind() && same
    });
    let family = model_class(config)?;
    let class = match wanted {
        Wanted::Classify(_) | Wanted::MultiLabel(_) | Wanted::Regress => "ForSequenceClassification",
        Wanted::Token(_) => "ForTokenClassification",
        Wanted::Answer if family == "XLNet" => "ForQuestionAnsweringSimple",
        Wanted::Answer => "ForQuestionAnswering",
        Wanted::MaskedLm => "ForMaskedLM",
        Wanted::CausalLm => "LMHeadModel",
    };
    config.insert("architectures".into(), json!([format!("{family}{class}")]));
    config.insert("dtype".into(), json!("float32"));
    config.remove("torch_dtype");
    if let (Some(labels), false) = (&labels, stays) {
        let by_number: Map<String, Value> = labels.iter().enumerate().map(|(i, l)| (i.to_string(), json!(l))).collect();
        let by_name: Map<String, Value> = labels.iter().enumerate().map(|(i, l)| (l.clone(), json!(i))).collect();
        config.insert("id2label".into(), Value::Object(by_number));
        config.insert("label2id".into(), Value::Object(by_name));
        config.remove("num_labels");
    }
    match wanted {
        Wanted::Classify(_) => config.insert("problem_type".into(), json!("single_label_classification")),
        Wanted::MultiLabel(_) => config.insert("problem_type".into(), json!("multi_label_classification")),
        Wanted::Regress => config.insert("problem_type".into(), json!("regression")),
        _ => config.remove("problem_type"),
    };
    Ok(())
}

/// How Python's class names of this family begin.
fn model_class(config: &Map<String, Value>) -> Result<&'static str, Error> {
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    Ok(match kind {
        "bert" => "Bert",
        "distilbert" => "DistilBert",
        "roberta" => "Roberta",
        "xlm-roberta" => "XLMRoberta",
        "camembert" => "Camembert",
        "albert" => "Albert",
        "mpnet" => "MPNet",
        "electra" => "Electra",
        "mobilebert" => "MobileBert",
        "longformer" => "Longformer",
        "xlnet" => "XLNet",
        "gpt2" => "GPT2",
        other => {
            return Err(Error::new(format!("config.json: \"model_type\" is \"{other}\", which cannot be trained")));
        }
    })
}
