//! Where the result goes: nothing that is there is lost, neither what was there before the search nor what came in while it ran.

use super::OptimizeArgs;
use crate::failure::Failure;
use crate::files;
use crate::load::BUILTIN;
use sparing_model::{Model, check_replaceable};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How things were when it began.
pub struct Begun {
    /// When that was.
    pub at: Instant,
    /// Whether what is in `--out` may be replaced.
    replaces: bool,
}

impl Begun {
    /// Refuses to lose anything.
    pub fn now(args: &OptimizeArgs) -> Result<Begun, Failure> {
        let at = Instant::now();
        let out = args.out.display();
        if args.out.file_name().is_none() {
            return Err(Failure::Usage(format!("--out {out}: give a directory's name")));
        }
        if let Some(what) = overwritten(args) {
            let why = "is there, and would be lost; give another directory";
            return Err(Failure::Usage(format!("--out {out}: {what} {why}")));
        }
        // One that was stopped goes on, and one that was stopped while its result was being measured too.
        let goes_on = args.resume && args.journal().exists();
        if args.resume && !goes_on && args.out.exists() && !args.overwrite {
            return Err(Failure::new(format!(
                "--resume: there is no search to go on with beside {out}; what is there is finished"
            )));
        }
        files::free(&args.out, args.overwrite || goes_on)?;
        // What comes in where nothing was is somebody else's.
        Ok(Begun { at, replaces: args.overwrite || goes_on && args.out.exists() })
    }

    /// Saves a model in `--out`, or beside it if something came in there that may not be replaced. Returns where it is, and what to say
    /// of that.
    pub fn save(&self, args: &OptimizeArgs, model: &Model) -> Result<(PathBuf, Option<String>), Failure> {
        let asked: PathBuf = args.out.components().collect();
        if self.replaces && check_replaceable(&asked).is_ok() {
            model.save(&asked)?;
            return Ok((asked, None));
        }
        let place = model.save_beside(&asked)?;
        let (out, there) = (asked.display(), place.display());
        let note = format!("{out} was taken while the search ran, by something else: the model is in {there}");
        Ok((place.clone(), (place != asked).then_some(note)))
    }
}

/// What the result is made from that writing it would remove, in words.
fn overwritten(args: &OptimizeArgs) -> Option<String> {
    // A directory is replaced with all that is in it.
    let out = std::fs::canonicalize(&args.out).ok()?;
    let is_inside = |path: &Path| std::fs::canonicalize(path).is_ok_and(|path| path.starts_with(&out));
    let model = Some(args.model.name()).filter(|name| *name != BUILTIN).map(Path::new);
    if model.is_some_and(is_inside) {
        return Some("the model to optimise".into());
    }
    let train = args.tutor.train.as_deref().map(|path| ("--train", path));
    let rows = args.data.files().chain(train).find(|(_, path)| is_inside(path));
    rows.map(|(flag, path)| format!("{flag} {}", path.display()))
}
