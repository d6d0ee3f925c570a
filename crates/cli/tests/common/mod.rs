//! Runs the program as a user would, and checks what must always hold.
#![allow(dead_code)]

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The program with one thread, no colour and nothing from the Hub.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparing"));
    command.args(args).env("HF_HUB_OFFLINE", "1").env_remove("SPARING_ISA").stdin(Stdio::null());
    command
}

/// Runs the program with nothing on standard input.
pub fn sparing(args: &[&str]) -> Ran {
    finish(command(args), &[])
}

/// Runs the program with these bytes on standard input.
pub fn piped(args: &[&str], input: &[u8]) -> Ran {
    finish(command(args), input)
}

/// Runs a command to its end.
pub fn finish(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may end before it has read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked") && !ran.err.contains("internal error"), "{}", ran.err);
    ran
}

impl Ran {
    /// Standard output of a run that must have gone well.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        self.out
    }

    /// One JSON object per line of a run that must have gone well.
    pub fn json_lines(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The JSON object of a run that must have gone well.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// The message of a run that must have failed with this code: exactly one line.
    pub fn error(self, code: i32) -> String {
        assert_eq!(self.code, code, "{} {}", self.out, self.err);
        let errors: Vec<&str> = self.err.lines().filter(|line| !line.starts_with("note: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.err);
        errors[0].strip_prefix("error: ").unwrap_or_else(|| panic!("{}", self.err)).to_string()
    }
}

/// A model directory of the engine's tests.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures").join(name);
    path.display().to_string()
}

/// A copy of a model directory that has no tokenizer, with a small vocabulary added.
pub fn with_vocabulary(name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let words =
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "new", "york", "##s", "."];
    std::fs::write(folder.path().join("vocab.txt"), words.join("\n")).unwrap();
    let path = folder.path().display().to_string();
    (folder, path)
}

/// A model directory that may be written to.
pub fn copied(name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("model");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    (folder, copy.display().to_string())
}

/// A model with something in this row of a tensor that is not a number.
pub fn spoilt_in(model: &str, name: &str, row: usize) -> (tempfile::TempDir, String) {
    with_number(model, name, row, f32::NAN)
}

/// A model with this number in this row of a tensor.
pub fn with_number(model: &str, name: &str, row: usize, number: f32) -> (tempfile::TempDir, String) {
    use sparing_model::{Model, OwnedTensor};
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model::load(model.as_ref()).unwrap();
    let table = model.weights.tensor(name).unwrap();
    let (shape, mut values) = (table.shape.to_vec(), vec![0.0; table.len()]);
    table.read(0, &mut values);
    values[row * shape[1..].iter().product::<usize>()] = number;
    model.weights = model.weights.replace(vec![OwnedTensor::f32(name, &shape, &values)]).unwrap();
    let path = folder.path().join("spoilt");
    model.save(&path).unwrap();
    (folder, path.display().to_string())
}

/// A file in a folder of its own.
pub fn file(name: &str, contents: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, contents).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// A table of texts, labelled as a tiny model itself would, mostly: there is something to lose.
pub fn labelled(model: &str, rows: usize) -> (tempfile::TempDir, String) {
    labelled_in(model, 0..rows)
}

/// Such a table of the rows from one number to another; below 343 every text is another one.
pub fn labelled_in(model: &str, rows: std::ops::Range<usize>) -> (tempfile::TempDir, String) {
    let words = ["a film", "the plot is thin", "good", "not good at all", "actors", "the film is good", "thin plot"];
    let text = |i: usize| format!("{} {} {}", words[i % 7], words[(i / 7) % 7], words[(i * 3 + i / 49) % 7]);
    let texts: Vec<String> = rows.clone().map(text).collect();
    let answers = piped(&["run", model, "--json"], texts.join("\n").as_bytes()).json_lines();
    let mut csv = "review,stars\n".to_string();
    for (i, (text, answer)) in rows.zip(texts.iter().zip(&answers)) {
        let label = answer["label"].as_str().unwrap();
        csv += &format!("{text},{}\n", if i % 11 == 0 { "LABEL_1" } else { label });
    }
    file("mine.csv", csv)
}
