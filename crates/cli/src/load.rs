//! From a name on the command line to a model.

use crate::failure::Failure;
use crate::{console, progress};
use clap::ValueEnum;
use indicatif::ProgressBar;
use sparing_model::{HeadChoice, LoadOptions, Model, OpenOptions, Transfer};
use std::path::Path;

/// A head to put on the network instead of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HeadArg {
    /// Hidden states of every token
    Hidden,
    /// One vector per text
    Embed,
    /// Labels or numbers of a text
    Sequence,
    /// Labels of words
    Token,
    /// Answers to questions
    Answer,
    /// Words for gaps
    Mask,
    /// Text that goes on
    Generate,
}

impl HeadArg {
    fn choice(self) -> HeadChoice {
        match self {
            HeadArg::Hidden => HeadChoice::Hidden,
            HeadArg::Embed => HeadChoice::Embed,
            HeadArg::Sequence => HeadChoice::Sequence,
            HeadArg::Token => HeadChoice::Token,
            HeadArg::Answer => HeadChoice::Answer,
            HeadArg::Mask => HeadChoice::MaskedLm,
            HeadArg::Generate => HeadChoice::CausalLm,
        }
    }
}

/// The name of the model that comes with the program. A directory of this name is `./builtin`.
pub const BUILTIN: &str = "builtin";

/// Reads a directory, or fetches a Hub id, showing how far the download is, and says what is odd about it.
pub fn open(name: &str, head: Option<HeadArg>) -> Result<Model, Failure> {
    let model = read(name, head)?;
    let left = model.architecture.layers_left_out(&model.weights);
    if left > 0 {
        let count = model.architecture.layers.len();
        console::warning(&format!(
            "{name}: config.json says {count} layer{}, the weights hold {left} more, which are not run",
            if count == 1 { "" } else { "s" }
        ));
    }
    Ok(model)
}

/// The same where all that was said before, by another process.
pub fn read(name: &str, head: Option<HeadArg>) -> Result<Model, Failure> {
    if name == BUILTIN {
        return Ok(sparing_builtin::model(&LoadOptions { head: head.map(HeadArg::choice) })?);
    }
    let mut shown: Option<(String, ProgressBar)> = None;
    let mut progress = |transfer: Transfer<'_>| {
        if shown.as_ref().is_none_or(|(file, _)| file != transfer.file) {
            let bar = progress::download(transfer.total, transfer.file);
            if let Some((_, last)) = shown.replace((transfer.file.to_string(), bar)) {
                last.finish_and_clear();
            }
        }
        if let Some((_, bar)) = &shown {
            bar.set_length(transfer.total);
            bar.set_position(transfer.done);
        }
    };
    let load = LoadOptions { head: head.map(HeadArg::choice) };
    let model = Model::open(name, OpenOptions { load, progress: Some(&mut progress), ..OpenOptions::default() });
    if let Some((_, last)) = shown {
        last.finish_and_clear();
    }
    model.map_err(|e| {
        // Which model it is, where only its file is named.
        let failure = Failure::from(e);
        if failure.message().is_some_and(|message| message.contains(name)) { failure } else { failure.at(name) }
    })
}

/// The same for work that takes long, or learns from what it reads: a number that is none would be found out late.
pub fn open_sound(name: &str, head: Option<HeadArg>) -> Result<Model, Failure> {
    let model = open(name, head)?;
    model.weights.check_finite().map_err(|e| Failure::from(e).at(name))?;
    Ok(model)
}

/// What to call a model in reports: the directory's own name, or the Hub id as given.
pub fn short_name(name: &str) -> String {
    if name == BUILTIN {
        return "the built-in model".to_string();
    }
    let path = Path::new(name).canonicalize().ok();
    let last = path.and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    last.unwrap_or_else(|| name.to_string())
}
