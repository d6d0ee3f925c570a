//! Long Range Arena (Tay et al. 2020, <https://arxiv.org/abs/2011.04006>): tasks whose sequences have 1 to 16 thousand
//! tokens. Made by rules or from public files, the same on every machine.

#[cfg(test)]
mod cheap;
mod image;
mod listops;
mod pathfinder;
mod retrieval;
mod set;
mod text;

pub use listops::{Rules, value};
pub use pathfinder::Scene;
pub use set::{Example, Part, Set};

use serde::{Deserialize, Serialize};
use sparing_model::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// One of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// What a nested expression comes to: 0 to 9.
    Listops,
    /// Whether a film review is positive, byte by byte.
    Text,
    /// Whether two texts are of one Wikipedia article, byte by byte. The original's corpus (which paper cites which) cannot
    /// be had, so this is a task of its own.
    WikipediaRetrieval,
    /// Which of ten things a grey picture of 32 x 32 shows, pixel by pixel (CIFAR-10).
    Image,
    /// Whether two dots are on one dashed curve, in pictures of 32 x 32.
    Pathfinder,
    /// The same in pictures of 128 x 128.
    PathX,
}

impl Task {
    /// All of them.
    pub const ALL: [Task; 6] =
        [Task::Listops, Task::Text, Task::WikipediaRetrieval, Task::Image, Task::Pathfinder, Task::PathX];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Task::Listops => "listops",
            Task::Text => "text",
            Task::WikipediaRetrieval => "wikipedia-retrieval",
            Task::Image => "image",
            Task::Pathfinder => "pathfinder",
            Task::PathX => "path-x",
        }
    }

    /// The task of this name.
    pub fn parse(name: &str) -> Result<Task, Error> {
        Task::ALL.into_iter().find(|task| task.name() == name).ok_or_else(|| {
            let names = Task::ALL.map(Task::name).join(", ");
            Error::new(format!("no task of the arena is called {name:?}; there are {names}"))
        })
    }

    /// Different tokens.
    pub fn vocabulary(self) -> usize {
        if self == Task::Listops { listops::TOKENS } else { 256 }
    }

    /// Different labels.
    pub fn classes(self) -> usize {
        if matches!(self, Task::Listops | Task::Image) { 10 } else { 2 }
    }

    /// The longest sequence.
    pub fn length(self) -> usize {
        match self {
            Task::Listops => 2000,
            Task::Text | Task::WikipediaRetrieval => 4000,
            Task::Image | Task::Pathfinder => 1024,
            Task::PathX => 128 * 128,
        }
    }

    /// Sequences of an example.
    pub fn sequences(self) -> usize {
        if self == Task::WikipediaRetrieval { 2 } else { 1 }
    }

    /// Pixels of a row, if sequences are pictures.
    pub fn side(self) -> Option<usize> {
        match self {
            Task::Image | Task::Pathfinder => Some(32),
            Task::PathX => Some(128),
            _ => None,
        }
    }

    /// Examples to train on, unless another number is asked for.
    pub fn examples(self) -> usize {
        match self {
            Task::Listops => 96_000,
            Task::Text => 25_000,
            Task::WikipediaRetrieval => 10_000,
            Task::Image => 45_000,
            Task::Pathfinder => 160_000,
            Task::PathX => 20_000,
        }
    }
}

/// What to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Examples to train on; those to evaluate on are a tenth of them or 2000, what is less.
    pub examples: usize,
    /// The longest sequence; others are cut, or not made. Pictures have the length they have.
    pub length: usize,
    /// For ListOps, the shortest.
    pub shortest: usize,
    /// Decides everything drawn.
    pub seed: u64,
}

impl Wanted {
    /// As published, as far as we have it.
    pub fn of(task: Task) -> Wanted {
        Wanted { examples: task.examples(), length: task.length(), shortest: 500, seed: 0 }
    }

    /// Refuses what cannot be made of a task, whatever its data are.
    pub fn check(&self, task: Task, data: Option<&Path>) -> Result<(), Error> {
        let name = task.name();
        if task.side().is_some() && self.length != task.length() {
            let pixels = task.length();
            return Err(Error::new(format!("{name}: its pictures have {pixels} pixels; leave --length out")));
        }
        if task == Task::Listops && (self.shortest + 2 > self.length || self.length < 4) {
            return Err(Error::new(format!(
                "{name}: --length {} must be more than --min-length {} by two, and 4 at least",
                self.length, self.shortest
            )));
        }
        match (task, data) {
            (Task::Text | Task::WikipediaRetrieval | Task::Image, None) => {
                Err(Error::new(format!("{name} reads public data; give --data DIR")))
            }
            _ => Ok(()),
        }
    }

    /// Examples of a part that is drawn.
    pub(crate) fn count(&self, part: Part) -> usize {
        if part == Part::Train { self.examples } else { (self.examples / 10).clamp(1, 2000) }
    }
}

/// Makes one part of a task. `data`: the directory with `imdb/`, `cifar10/` and `wikipedia/`, for the tasks that read it.
/// `told` hears how many examples are done; false asks to stop.
pub fn make(
    task: Task,
    part: Part,
    wanted: &Wanted,
    data: Option<&Path>,
    told: &mut dyn FnMut(usize) -> bool,
) -> Result<Set, Error> {
    wanted.check(task, data)?;
    let data = data.unwrap_or(Path::new(""));
    match task {
        Task::Listops => listops::make(part, wanted, told),
        Task::Text => text::make(part, wanted, data, told),
        Task::WikipediaRetrieval => retrieval::make(part, wanted, data, told),
        Task::Image => image::make(part, wanted, data),
        Task::Pathfinder | Task::PathX => pathfinder::make(task, part, wanted, told),
    }
}

pub(crate) const INTERRUPTED: &str = "interrupted";

/// All bytes of a file; one that ends in `.zst` is unpacked. The name without that is tried first.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| Error::new(format!("{}: cannot be read ({e})", path.display()));
    if let Ok(bytes) = std::fs::read(path) {
        return Ok(bytes);
    }
    let mut name = path.as_os_str().to_os_string();
    name.push(".zst");
    let packed = Path::new(&name);
    let file = File::open(packed).map_err(|e| failed(packed, &e))?;
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).map_err(|e| failed(packed, &e))?;
    decoder.read_to_end(&mut bytes).map_err(|e| failed(packed, &e))?;
    Ok(bytes)
}
