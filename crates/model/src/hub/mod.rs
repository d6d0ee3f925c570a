//! Models by their Hub id (`org/name`, `org/name@revision`): only the files that are needed, into the cache that the
//! Python library shares.
//!
//! Environment: `HF_HOME` and `HF_HUB_CACHE` (where the cache is), `HF_ENDPOINT` (another Hub), `HF_TOKEN` (for private
//! models), `HF_HUB_OFFLINE=1` (never ask, use the cache).

mod fetch;
mod settings;

use crate::{Error, LoadOptions, Model};
pub(crate) use settings::Settings;
use std::path::{Path, PathBuf};

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The file, relative to the model's directory.
    pub file: &'a str,
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// How to open a model. Everything not set comes from the environment.
#[derive(Default)]
pub struct OpenOptions<'a> {
    /// How to read the directory.
    pub load: LoadOptions,
    /// Cache directory (`HF_HUB_CACHE`, or `HF_HOME` with `/hub`).
    pub cache: Option<PathBuf>,
    /// Address of the Hub (`HF_ENDPOINT`).
    pub endpoint: Option<String>,
    /// Never ask the Hub (`HF_HUB_OFFLINE`).
    pub offline: Option<bool>,
    /// Called while files come in.
    pub progress: Option<&'a mut dyn FnMut(Transfer<'_>)>,
}

impl Model {
    /// Opens a model directory, or, where there is no such directory, the model of that Hub id: `org/name`, with
    /// `@revision` for a branch, tag or commit. See [`OpenOptions`] for the environment it listens to.
    pub fn open(name: &str, mut options: OpenOptions<'_>) -> Result<Model, Error> {
        if Path::new(name).is_dir() {
            return Model::load_with(Path::new(name), &options.load);
        }
        if Path::new(name).exists() {
            return Err(Error::new(format!("{name}: is a file; give the model's directory")));
        }
        let id = HubId::parse(name)?;
        let settings = Settings::read(&options, &|name| std::env::var(name).ok())?;
        let mut silent = |_: Transfer<'_>| {};
        let progress = options.progress.take().unwrap_or(&mut silent);
        let missing =
            |e: Error| Error::new(format!("there is no directory {name} here, and the Hub has no answer: {e}"));
        let directory = fetch::snapshot(&id, &settings, progress).map_err(missing)?;
        Model::load_with(&directory, &options.load).map_err(|e| Error::new(format!("{id}: {e}")))
    }
}

/// A model on the Hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubId {
    /// `org/name`, or `name` for the oldest models.
    pub(crate) repository: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
}

impl std::fmt::Display for HubId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.repository),
            revision => write!(f, "{}@{revision}", self.repository),
        }
    }
}

impl HubId {
    /// Reads `org/name@revision`; the error says that it is neither this nor a directory.
    pub(crate) fn parse(name: &str) -> Result<HubId, Error> {
        let (repository, revision) = name.split_once('@').unwrap_or((name, "main"));
        let plain = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && part.len() <= 96
                && !part.contains("..")
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let known =
            repository.split('/').count() <= 2 && repository.split('/').all(plain) && revision.split('/').all(plain);
        if !known {
            let name = crate::weights::one_line(name);
            return Err(Error::new(format!(
                "{name}: there is no such directory, and it is no Hub id like org/name or org/name@revision"
            )));
        }
        Ok(HubId { repository: repository.to_string(), revision: revision.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let id = |name: &str| HubId::parse(name).map(|id| (id.repository, id.revision)).ok();
        let both = |a: &str, b: &str| Some((a.to_string(), b.to_string()));
        assert_eq!(id("org/name"), both("org/name", "main"));
        assert_eq!(id("gpt2"), both("gpt2", "main"));
        assert_eq!(id("org/na.me-1@refs/pr/1"), both("org/na.me-1", "refs/pr/1"));
        for bad in
            ["", "./model", "/model", "a/b/c", "a/../b", "a b/c", "org/name@", "org/name@../x", "org/", "~/model"]
        {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}
