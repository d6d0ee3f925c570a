//! A whole model: what a Hugging Face directory holds.

use crate::directory::Directory;
use crate::{Architecture, Error, HeadChoice, Plan, Tokenizer, Weights, sentence};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A model as its directory describes it.
///
/// Made by [`Model::load`], [`Model::open`] or [`Model::new`].
pub struct Model {
    /// The network.
    pub architecture: Architecture,
    /// What is economised.
    pub plan: Plan,
    /// The numbers.
    pub weights: Weights,
    /// Text to tokens, if the directory has it; see [`Model::tokenizer`] for an error that says what is missing.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Where the other files are; `None` for a model made in memory.
    pub(crate) directory: Option<Arc<Directory>>,
    /// Whether it was pruned since it was read from there.
    pub(crate) pruned: bool,
    /// What calibration data says of it, where that is not what lies in the directory; see [`Model::calibrated`].
    pub(crate) calibration: Option<Arc<crate::Calibration>>,
}

/// How to read a directory.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The head to put on top; by default the one the directory names.
    pub head: Option<HeadChoice>,
}

impl Model {
    /// A model from its parts, without a tokenizer or files.
    pub fn new(architecture: Architecture, plan: Plan, weights: Weights) -> Model {
        Model { architecture, plan, weights, tokenizer: None, directory: None, pruned: false, calibration: None }
    }

    /// Reads a Hugging Face directory.
    pub fn load(directory: &Path) -> Result<Model, Error> {
        Model::load_with(directory, &LoadOptions::default())
    }

    /// Reads a Hugging Face directory with a head of the caller's choice.
    pub fn load_with(directory: &Path, options: &LoadOptions) -> Result<Model, Error> {
        if !directory.is_dir() {
            return Err(Error::new(format!("{}: is not a directory", directory.display())));
        }
        Model::read(Directory::Disk(directory.to_path_buf()), options)
    }

    /// Reads a directory that is in memory: relative paths (forward slashes) to contents. Weights that are part of the
    /// program are read where they are.
    pub fn load_from_memory<C>(files: BTreeMap<String, C>, options: &LoadOptions) -> Result<Model, Error>
    where
        C: Into<Cow<'static, [u8]>>,
    {
        let files = files.into_iter().map(|(name, content)| (name, content.into())).collect();
        Model::read(Directory::Memory(files), options)
    }

    /// What `config.json` says, without a plan; the weights; and the longest input that a sentence encoder was made for.
    pub(crate) fn published(
        directory: &Directory,
        head: Option<HeadChoice>,
    ) -> Result<(Architecture, Weights, Option<usize>), Error> {
        let missing = || {
            Error::new(format!(
                "{} is not there; is it a Hugging Face model directory?",
                directory.label("config.json")
            ))
        };
        let config = directory.read("config.json")?.ok_or_else(missing)?;
        let mut weights = Weights::open_in(directory)?;
        // A directory with pooling modules is a sentence encoder, whatever head it was trained with.
        let wants_embedding = matches!(head, None | Some(HeadChoice::Embed));
        let pooled = wants_embedding && directory.holds("modules.json");
        let choice = if pooled { Some(HeadChoice::Embed) } else { head };
        let mut architecture = Architecture::from_config(&config, choice, &|name| weights.contains(name))?;
        let mut longest = None;
        if pooled {
            match sentence::read(directory, architecture.hidden, &mut weights)? {
                Some(sentence) => (architecture.head, longest) = (sentence.head, sentence.max_tokens),
                None => architecture = Architecture::from_config(&config, head, &|name| weights.contains(name))?,
            }
        }
        Ok((architecture, weights, longest))
    }

    fn read(directory: Directory, options: &LoadOptions) -> Result<Model, Error> {
        let (mut architecture, weights, longest) = Model::published(&directory, options.head)?;
        let plan: Plan = match directory.read("sparing.json")? {
            None => Plan::default(),
            Some(text) => Plan::from_file(&text)?,
        };
        plan.check()?;
        plan.apply(&mut architecture).map_err(|e| Error::new(format!("sparing.json: {e}")))?;
        architecture.check(&weights).map_err(|e| match plan.rebuilds() {
            true => Error::new(format!("{e} (after what sparing.json says of the layers)")),
            false => e,
        })?;
        plan.check_replaced(&architecture, &weights)?;
        let mut tokenizer = Tokenizer::read(&directory, &architecture)?;
        if let (Some(tokenizer), Some(longest)) = (&mut tokenizer, longest) {
            tokenizer.limit(longest);
        }
        let (tokenizer, directory) = (tokenizer.map(Arc::new), Some(Arc::new(directory)));
        Ok(Model { architecture, plan, weights, tokenizer, directory, pruned: false, calibration: None })
    }

    /// The tokenizer, or an error that says which files are missing.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_deref().ok_or_else(|| {
            let place = self.directory.as_ref().map_or("the model made in memory".to_string(), |d| d.label(""));
            let sentence_piece = ["spiece.model", "sentencepiece.bpe.model"].iter().find(|name| self.directory.as_ref().is_some_and(|d| d.holds(name)));
            Error::new(match sentence_piece {
                Some(name) => format!(
                    "{place}: only {name} is there; convert it with python -c \"from transformers import AutoTokenizer; \
                     AutoTokenizer.from_pretrained('DIR').save_pretrained('DIR')\""
                ),
                None => format!("{place}: holds no tokenizer; add tokenizer.json, or vocab.txt, or vocab.json and merges.txt"),
            })
        })
    }
}
