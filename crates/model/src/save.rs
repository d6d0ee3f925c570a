//! Writing a model: everything into a directory beside the wanted one, flushed, then renamed. Whatever interrupts it, no
//! directory is ever half written: the old one is there until the new one is complete.

use crate::contents::{self, COMPANIONS};
use crate::directory::Directory;
use crate::replace;
use crate::weights::{INDEX, SINGLE};
use crate::{Error, Model, OwnedTensor, sentence};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

impl Model {
    /// The small files that belong to the model (`config.json`, the tokenizer's) with their contents, for a model that
    /// is made from this one. None for a model made in memory.
    pub fn companions(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let Some(source) = &self.directory else { return Ok(vec![]) };
        let mut found = Vec::new();
        for name in COMPANIONS {
            if let Some(content) = source.read(name)? {
                found.push((name.to_string(), content));
            }
        }
        Ok(found)
    }

    /// The files in folders of a sentence encoder's modules with their contents, for a model that pools as this one does: settings,
    /// and the weights of dense modules. None for any other model.
    pub fn modules(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let Some(source) = &self.directory else { return Ok(vec![]) };
        let mut found = Vec::new();
        for folder in sentence::folders(source)? {
            for name in ["config.json", SINGLE].map(|name| format!("{folder}/{name}")) {
                found.extend(source.read(&name)?.map(|content| (name, content)));
            }
        }
        Ok(found)
    }

    /// Writes the model as a Hugging Face directory: `config.json` and the tokenizer's files byte for byte, the weights
    /// bit for bit (in one file if any were replaced), and `sparing.json` if anything is economised. An existing model
    /// directory is replaced as a whole; one that holds anything else is left alone, with an error.
    pub fn save(&self, directory: &Path) -> Result<(), Error> {
        let source = self.source()?;
        let mut out = Replacement::begin(directory)?;
        self.put(source, &mut out)?;
        out.finish()
    }

    /// [`Model::save`] in the place of nothing: where something is by now, the model goes beside it, under the first of
    /// `name-2`, `name-3` and so on that is free. Returns where it is.
    pub fn save_beside(&self, directory: &Path) -> Result<PathBuf, Error> {
        let source = self.source()?;
        let mut out = Replacement::beside(directory)?;
        self.put(source, &mut out)?;
        out.finish_beside()
    }

    fn source(&self) -> Result<&Directory, Error> {
        let made = || Error::new("a model made in memory has no config.json to save; use write_directory");
        self.directory.as_deref().ok_or_else(made)
    }

    fn put(&self, source: &Directory, out: &mut Replacement) -> Result<(), Error> {
        for name in COMPANIONS {
            if let Some(content) = source.read(name)? {
                out.write(name, &content)?;
            }
        }
        let files = self.weights.to_files()?;
        if !files.iter().any(|(path, _)| path == SINGLE) {
            out.copy(source, INDEX)?;
        }
        for (path, content) in files {
            out.write(&path, &content)?;
            // Modules of sentence encoders keep their settings beside their weights.
            if let Some((folder, _)) = path.split_once('/') {
                out.copy(source, &format!("{folder}/config.json"))?;
            }
        }
        out.copy(source, "1_Pooling/config.json")?;
        if let Some(own) = &self.calibration {
            out.write(crate::CALIBRATION_FILE, &own.to_bytes()?)?;
        } else if !self.pruned {
            // Of a model before it was pruned, it says nothing of this one.
            out.copy(source, crate::CALIBRATION_FILE)?;
        }
        if let Some(plan) = self.plan.to_file()? {
            out.write("sparing.json", &plan)?;
        }
        Ok(())
    }
}

/// Writes a directory from files and tensors in memory, as safely as [`Model::save`]. `files` are relative paths and
/// contents (`config.json` among them); the tensors become `model.safetensors`.
pub fn write_directory(directory: &Path, files: &[(&str, &[u8])], tensors: &[OwnedTensor]) -> Result<(), Error> {
    let weights = crate::weights::serialise(tensors)?;
    let mut out = Replacement::begin(directory)?;
    for (name, content) in files {
        out.write(name, content)?;
    }
    out.write(SINGLE, &weights)?;
    out.finish()
}

/// Refuses a directory that [`Model::save`] would not write to. Replacing means deleting: only what is a model, or nothing, may go.
/// Whoever works for long before saving asks first.
pub fn check_replaceable(target: &Path) -> Result<(), Error> {
    let target = &plain(target);
    sibling(target, "partial")?;
    match (target.is_dir(), fs::symlink_metadata(target)) {
        (false, Ok(found)) if found.is_symlink() && !target.exists() => {
            let why = "is a link to something that is not there; give another directory to write to";
            return Err(Error::new(format!("{}: {why}", target.display())));
        }
        (false, Ok(_)) => {
            return Err(Error::new(format!("{}: is a file; give a directory to write to", target.display())));
        }
        _ => {}
    }
    check_writable(target)?;
    if target.is_dir() { check_contents(target, target) } else { Ok(()) }
}

/// Refuses a directory with anything in it that is not a saved model's. `name`: what to call it, wherever it is now.
fn check_contents(directory: &Path, name: &Path) -> Result<(), Error> {
    let name = name.display();
    let unread = |e: std::io::Error| Error::new(format!("{name}: cannot be read ({e}); give another directory"));
    match contents::stranger(directory).map_err(unread)? {
        Some(stranger) => Err(Error::new(format!(
            "{name}: holds {}, which would be lost: it is not a model directory alone; give another one to write to",
            stranger.display()
        ))),
        None if is_empty(directory) || contents::is_model(directory) => Ok(()),
        None => {
            Err(Error::new(format!("{name}: is not empty and not a model directory; give another one to write to")))
        }
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// Refuses a place that nothing can be made beside.
fn check_writable(target: &Path) -> Result<(), Error> {
    // A relative path ends in an empty one, which is here.
    let here = |path: &Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_path_buf() };
    let above = target.ancestors().skip(1).map(here).find(|path| fs::symlink_metadata(path).is_ok());
    let above = above.unwrap_or_else(|| PathBuf::from("."));
    if !above.is_dir() {
        let why = "is not a directory, so nothing can be written in it";
        return Err(Error::new(format!("{}: {why}; give another place to write to", above.display())));
    }
    // Permissions tell less than trying does.
    let trial = sibling(&above.join("trial"), "partial")?;
    fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial)).map_err(|e| {
        Error::new(format!("{}: nothing can be written there ({e}); give another place to write to", above.display()))
    })
}

/// A path without slashes and dots at its end: `a/`, `a/.` and `a` are the same directory, but not for who renames it.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A directory being written beside the one it will replace.
struct Replacement {
    target: PathBuf,
    beside: PathBuf,
}

impl Replacement {
    /// Of what is there, which must be nothing or a model.
    fn begin(target: &Path) -> Result<Replacement, Error> {
        check_replaceable(target)?;
        Replacement::beside(target)
    }

    /// Of nothing: whatever is there stays.
    fn beside(target: &Path) -> Result<Replacement, Error> {
        let target = plain(target);
        let beside = sibling(&target, "partial")?;
        let parent = beside.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent).and_then(|()| fs::create_dir(&beside)).map_err(|e| unwritable(&beside, &e))?;
        Ok(Replacement { target, beside })
    }

    fn write(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.beside.join(name);
        let write = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut file = File::create(&path)?;
            file.write_all(content)?;
            file.sync_all()
        };
        write().map_err(|e| unwritable(&path, &e))
    }

    /// Carries a file over, if it is there and not written yet.
    fn copy(&mut self, source: &Directory, name: &str) -> Result<(), Error> {
        match source.read(name)? {
            Some(content) if !self.beside.join(name).exists() => self.write(name, &content),
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<(), Error> {
        let failed = |e: &std::io::Error| unwritable(&self.target, e);
        sync(&self.beside).map_err(|e| failed(&e))?;
        // A directory cannot be renamed onto one that is not empty: the old one steps aside first.
        let old = if self.target.exists() {
            let old = sibling(&self.target, "old")?;
            fs::rename(&self.target, &old).map_err(|e| failed(&e))?;
            // Something may have come in since it was looked at. Nobody puts anything in here.
            if let Err(stranger) = check_contents(&old, &self.target) {
                fs::rename(&old, &self.target).map_err(|e| failed(&e))?;
                return Err(stranger);
            }
            Some(old)
        } else {
            None
        };
        if let Err(e) = fs::rename(&self.beside, &self.target) {
            if let Some(old) = &old {
                let _ = fs::rename(old, &self.target);
            }
            return Err(failed(&e));
        }
        sync_above(&self.target).map_err(|e| failed(&e))?;
        if let Some(old) = old {
            fs::remove_dir_all(&old).map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    /// Puts it where nothing is: the target, or the first free name beside it.
    fn finish_beside(self) -> Result<PathBuf, Error> {
        sync(&self.beside).map_err(|e| unwritable(&self.target, &e))?;
        let mut number = 1;
        loop {
            let place = numbered(&self.target, number);
            if self.put(&place).map_err(|e| unwritable(&place, &e))? {
                return Ok(place);
            }
            number += 1;
        }
    }

    /// False where something is.
    fn put(&self, place: &Path) -> std::io::Result<bool> {
        let is_taken = || fs::symlink_metadata(place).is_ok();
        clear(place);
        if is_taken() {
            return Ok(false);
        }
        // Nothing can be renamed onto a directory with something in it: of two that come at the same time, one goes on.
        match fs::rename(&self.beside, place) {
            Err(_) if is_taken() => Ok(false),
            renamed => renamed.and_then(|()| sync_above(place)).map(|()| true),
        }
    }
}

/// `name`, `name-2`, `name-3`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    if number > 1 {
        name.push(format!("-{number}"));
    }
    path.with_file_name(name)
}

/// Makes way where nothing is lost by it: an empty directory, or a link to one.
fn clear(place: &Path) {
    if is_empty(place) {
        // If it stays, the place is taken.
        let _ = fs::remove_dir(place).or_else(|_| fs::remove_file(place));
    }
}

impl Drop for Replacement {
    /// Whatever was not renamed is not wanted.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.beside);
    }
}

/// A hidden directory beside `path`.
fn sibling(path: &Path, kind: &str) -> Result<PathBuf, Error> {
    replace::sibling(path, kind)
        .ok_or_else(|| Error::new(format!("{}: is not a directory name to write to", path.display())))
}

/// Flushes a directory's entries (where the system can).
fn sync(directory: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Flushes the entries of the directory that something is in.
fn sync_above(path: &Path) -> std::io::Result<()> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync)
}

fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::new(format!("{}: cannot be written ({e})", path.display()))
}
