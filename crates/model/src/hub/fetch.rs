//! Bringing a model's files into the cache.

use super::{HubId, Settings, Transfer};
use crate::Error;
use crate::weights::{is_plain_name, one_line, shard_names};
use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Attempts to resume a download that breaks off.
const RETRIES: usize = 2;

/// Small files that are taken when they are there.
const OPTIONAL: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "sparing.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
];

/// The directory of the model in the cache, complete.
pub(super) fn snapshot(
    id: &HubId,
    settings: &Settings,
    progress: &mut dyn FnMut(Transfer<'_>),
) -> Result<PathBuf, Error> {
    let cache = Cache::new(settings.cache.clone());
    if settings.offline {
        return cached(id, &cache).ok_or_else(|| {
            Error::new(format!(
                "{id}: is not in the cache {} and the Hub may not be asked (HF_HUB_OFFLINE); download it once without that",
                settings.cache.display()
            ))
        });
    }
    let mut builder = ApiBuilder::from_cache(cache.clone()).with_progress(false).with_retries(RETRIES);
    builder = builder.with_user_agent("sparing", env!("CARGO_PKG_VERSION"));
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if settings.token.is_some() {
        builder = builder.with_token(settings.token.clone());
    }
    let api = builder.build().map_err(|e| failed(id, &e))?;
    let info = match api.repo(id.repo(&id.revision)).info() {
        Ok(info) => info,
        // No answer at all, as opposed to "no": what is in the cache will do.
        Err(e) => return cached(id, &cache).filter(|_| status(&e).is_none()).ok_or_else(|| failed(id, &e)),
    };
    if !is_plain_name(&info.sha) {
        return Err(Error::new(format!("{id}: the Hub names the commit \"{}\"", one_line(&info.sha))));
    }
    let names: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
    let mut fetch = Fetch { id, api: &api, cache: &cache, commit: &info.sha, progress };
    let directory = fetch.all(&names)?;
    // Only now may the revision's name point to this commit: everything is there.
    cache.repo(id.repo(&id.revision)).create_ref(&info.sha).map_err(|e| failed(id, &ApiError::IoError(e)))?;
    Ok(directory)
}

impl HubId {
    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.repository.clone(), RepoType::Model, revision.to_string())
    }
}

/// The snapshot that an earlier download, ours or Python's, left in the cache.
fn cached(id: &HubId, cache: &Cache) -> Option<PathBuf> {
    let repo = cache.repo(id.repo(&id.revision));
    let by_name = repo.get("config.json").and_then(|path| Some(path.parent()?.to_path_buf()));
    by_name.or_else(|| Some(repo.pointer_path(&id.revision)).filter(|path| path.join("config.json").exists()))
}

struct Fetch<'a> {
    id: &'a HubId,
    api: &'a Api,
    cache: &'a Cache,
    commit: &'a str,
    progress: &'a mut dyn FnMut(Transfer<'_>),
}

impl Fetch<'_> {
    /// Every file that loading may look at, of those the Hub has.
    fn all(&mut self, names: &[String]) -> Result<PathBuf, Error> {
        let has = |name: &str| names.iter().any(|n| n == name);
        if !has("config.json") {
            return Err(Error::new(format!("{}: has no config.json; it is not a Transformers model", self.id)));
        }
        let mut wanted: Vec<String> = OPTIONAL.iter().map(|n| n.to_string()).collect();
        let tokenizer: &[&str] =
            if has("tokenizer.json") { &["tokenizer.json"] } else { &["vocab.txt", "vocab.json", "merges.txt"] };
        wanted.extend(tokenizer.iter().map(|n| n.to_string()));
        // Dense modules of sentence encoders have a folder each.
        wanted.extend(names.iter().filter(|n| is_module_file(n)).cloned());
        if has("model.safetensors") {
            wanted.push("model.safetensors".into());
        } else if has("model.safetensors.index.json") {
            let index = self.file("model.safetensors.index.json")?;
            let text = std::fs::read(&index).map_err(|e| failed(self.id, &ApiError::IoError(e)))?;
            let shards = shard_names(&text)
                .map_err(|why| Error::new(format!("{}: model.safetensors.index.json {why}", self.id)))?;
            if let Some(missing) = shards.iter().find(|shard| !has(shard)) {
                return Err(Error::new(format!(
                    "{}: model.safetensors.index.json names {missing}, which is not there",
                    self.id
                )));
            }
            wanted.extend(shards);
        } else {
            return Err(Error::new(format!(
                "{}: has no model.safetensors; convert it with python -c \"from transformers import AutoModel; \
                 AutoModel.from_pretrained('{}').save_pretrained('DIR')\" (AutoModelFor... to keep a head) and open DIR",
                self.id, self.id.repository
            )));
        }
        for name in wanted.iter().filter(|name| has(name)) {
            self.file(name)?;
        }
        Ok(self.cache.repo(self.id.repo(self.commit)).pointer_path(self.commit))
    }

    /// One file, from the cache if it is there.
    fn file(&mut self, name: &str) -> Result<PathBuf, Error> {
        let path = self.cache.repo(self.id.repo(self.commit)).pointer_path(self.commit).join(name);
        if path.exists() {
            return Ok(path);
        }
        let size = Cell::new(0);
        let reporter = Reporter { name, done: 0, size: &size, progress: self.progress };
        let repo = self.api.repo(self.id.repo(self.commit));
        let path = repo.download_with_progress(name, reporter).map_err(|e| {
            let e = failed(self.id, &e);
            Error::new(format!("{e} (while fetching {name})"))
        })?;
        check_size(self.id, name, &path, size.get())?;
        Ok(path)
    }
}

/// A connection that ends early without an error must not leave half a file behind under its final name.
fn check_size(id: &HubId, name: &str, path: &Path, expected: u64) -> Result<(), Error> {
    let found = std::fs::metadata(path).map(|m| m.len()).unwrap_or(0);
    if found == expected {
        return Ok(());
    }
    if let Ok(blob) = std::fs::canonicalize(path) {
        let _ = std::fs::remove_file(blob);
    }
    let _ = std::fs::remove_file(path);
    Err(Error::new(format!("{id}: {name} came with {found} bytes instead of {expected}; try again")))
}

/// `2_Dense/config.json` and the like.
fn is_module_file(name: &str) -> bool {
    let Some((folder, file)) = name.split_once('/') else { return false };
    let numbered = folder.split_once('_').is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    numbered && is_plain_name(folder) && matches!(file, "config.json" | "model.safetensors")
}

/// The HTTP status in an error, if the Hub answered.
fn status(error: &ApiError) -> Option<u16> {
    let text = match error {
        ApiError::RequestError(e) => e.to_string(),
        ApiError::TooManyRetries(e) => return status(e),
        _ => return None,
    };
    text.strip_prefix("http status: ")?.get(..3)?.parse().ok()
}

fn failed(id: &HubId, error: &ApiError) -> Error {
    Error::new(match status(error) {
        Some(404) => format!("{id}: the Hub does not have this (404); check the name and revision"),
        Some(401 | 403) => {
            format!("{id}: the Hub refuses access (it may not exist, or be private); check the name, or set HF_TOKEN")
        }
        _ => format!(
            "{id}: cannot be downloaded: {}; check the network, or set HF_HUB_OFFLINE=1 to use the cache",
            one_line(&error.to_string())
        ),
    })
}

/// Passes on what the client reports, and remembers the size it was promised.
struct Reporter<'a> {
    name: &'a str,
    done: u64,
    size: &'a Cell<u64>,
    progress: &'a mut dyn FnMut(Transfer<'_>),
}

impl Reporter<'_> {
    fn report(&mut self) {
        (self.progress)(Transfer { file: self.name, done: self.done, total: self.size.get() });
    }
}

impl Progress for Reporter<'_> {
    fn init(&mut self, size: usize, _: &str) {
        // Called anew for every attempt.
        self.done = 0;
        self.size.set(size as u64);
        self.report();
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        self.report();
    }

    fn finish(&mut self) {
        self.report();
    }
}
