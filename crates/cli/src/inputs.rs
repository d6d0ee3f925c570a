//! Where texts come from: arguments, lines of a file or a pipe, columns of a table.

use crate::failure::Failure;
use crate::{console, interrupt};
use sparing_tasks::{Columns, Dataset, Select};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// A line longer than this is not a line of text.
const LONGEST_LINE: u64 = 64 << 20;

/// One text, or a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The text.
    pub text: String,
    /// The second text.
    pub pair: Option<String>,
    /// Where it comes from, for errors: `stdin line 3`.
    pub place: String,
}

/// A text in the model's place (`sparing run "a text"`): it has spaces and nothing is called so. The built-in model is meant.
pub fn text_first(model: &mut Option<String>) -> Option<String> {
    model.take_if(|name| name.contains(char::is_whitespace) && !Path::new(name).exists())
}

/// Texts as they become available.
pub struct Inputs {
    source: Source,
    /// The second text of every input that has none of its own.
    pair: Option<String>,
    /// Inputs come from a table, whose columns may hold second texts.
    pub has_columns: bool,
    /// Found while a batch was being filled; told after the batch has been worked on.
    failed: Option<Failure>,
}

enum Source {
    Ready(std::vec::IntoIter<Input>),
    /// Lines that a thread reads, so that a slow writer does not hold back what is there already.
    Stream(Receiver<Result<Input, Failure>>),
}

impl Inputs {
    /// Texts from the command line.
    pub fn from_texts(texts: &[String]) -> Inputs {
        let input =
            |(i, text): (usize, &String)| Input { text: text.clone(), pair: None, place: format!("text {}", i + 1) };
        Inputs::ready(texts.iter().enumerate().map(input).collect())
    }

    /// One text per line; empty lines are empty texts, so that answers and lines correspond.
    pub fn from_lines(reader: impl Read + Send + 'static, name: &str) -> Inputs {
        let (sender, receiver) = sync_channel(4096);
        let name = name.to_string();
        std::thread::spawn(move || send_lines(BufReader::new(reader), &name, &sender));
        Inputs { source: Source::Stream(receiver), pair: None, has_columns: false, failed: None }
    }

    /// A file: a table by its extension (CSV, TSV, JSONL, JSON, Parquet), else one text per line.
    pub fn from_file(path: &Path, text: Option<&str>, pair: Option<&str>) -> Result<Inputs, Failure> {
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        let inner = path.file_stem().map(|s| Path::new(s).extension().is_some_and(|e| e != "txt")).unwrap_or(false);
        let is_table = matches!(extension.as_str(), "csv" | "tsv" | "tab" | "jsonl" | "ndjson" | "json" | "parquet");
        if is_table || (extension == "gz" && inner) {
            return Inputs::from_table(path, text, pair);
        }
        if let Some(column) = text {
            let known = "only .csv, .tsv, .jsonl, .json and .parquet files have columns";
            return Err(Failure::Usage(format!("--text {column}: {} has no columns; {known}", path.display())));
        }
        let failed = |e: std::io::Error| Failure::new(format!("{}: cannot be read ({e})", path.display()));
        let file = std::fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Failure::new(format!("{}: is a directory, not a file of texts", path.display())));
        }
        Ok(Inputs::from_lines(file, &path.display().to_string()))
    }

    fn from_table(path: &Path, text: Option<&str>, pair: Option<&str>) -> Result<Inputs, Failure> {
        let named = Columns { text: text.map(Into::into), pair: pair.map(Into::into), ..Columns::default() };
        let columns = Columns { texts_only: true, ..named };
        let table = Dataset::table(path, &columns, &Select::default())?;
        if text.is_none() {
            table.notes.iter().for_each(|note| console::note(note));
        }
        let input = |example: &sparing_tasks::Example| Input {
            text: example.text.clone(),
            pair: example.pair.clone(),
            place: table.at(example),
        };
        let inputs = Inputs::ready(table.examples.iter().map(input).collect());
        Ok(Inputs { has_columns: true, ..inputs })
    }

    fn ready(inputs: Vec<Input>) -> Inputs {
        Inputs { source: Source::Ready(inputs.into_iter()), pair: None, has_columns: false, failed: None }
    }

    /// Gives every input this second text.
    pub fn with_pair(self, pair: Option<String>) -> Inputs {
        Inputs { pair, ..self }
    }

    /// Waits for at least one input, then takes those that are there already, until `prepare` has counted `budget`
    /// tokens. Empty at the end and after Ctrl-C. What goes wrong is told once all before it has been handed out.
    pub fn batch<T>(
        &mut self,
        budget: usize,
        mut prepare: impl FnMut(Input) -> Result<(T, usize), Failure>,
    ) -> Result<Vec<T>, Failure> {
        let mut batch = Vec::new();
        let mut tokens = 0;
        while tokens < budget && !interrupt::asked() {
            if let Some(failure) = self.failed.take() {
                if batch.is_empty() {
                    return Err(failure);
                }
                self.failed = Some(failure);
                break;
            }
            let next = if batch.is_empty() { self.wait() } else { self.take() };
            let pair = &self.pair;
            let whole = |input: Input| Input { pair: pair.clone().or(input.pair), ..input };
            match next.and_then(|input| input.map(whole).map(&mut prepare).transpose()) {
                Ok(Some((item, count))) => {
                    batch.push(item);
                    // Even an empty text is work.
                    tokens += count.max(1);
                }
                Ok(None) => break,
                Err(failure) => self.failed = Some(failure),
            }
        }
        Ok(batch)
    }

    /// The next input; none at the end or after Ctrl-C.
    fn wait(&mut self) -> Result<Option<Input>, Failure> {
        match &mut self.source {
            Source::Ready(inputs) => Ok(inputs.next()),
            Source::Stream(receiver) => loop {
                match receiver.recv_timeout(Duration::from_millis(50)) {
                    Ok(input) => return input.map(Some),
                    Err(RecvTimeoutError::Disconnected) => return Ok(None),
                    Err(RecvTimeoutError::Timeout) if interrupt::asked() => return Ok(None),
                    Err(RecvTimeoutError::Timeout) => {}
                }
            },
        }
    }

    /// The next input if it is there already.
    fn take(&mut self) -> Result<Option<Input>, Failure> {
        match &mut self.source {
            Source::Ready(inputs) => Ok(inputs.next()),
            Source::Stream(receiver) => match receiver.try_recv() {
                Ok(input) => input.map(Some),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
            },
        }
    }
}

/// Sends every line until the end, a failure, or nobody listens.
fn send_lines(mut reader: impl BufRead, name: &str, sender: &SyncSender<Result<Input, Failure>>) {
    for number in 1.. {
        let place = format!("{name} line {number}");
        let line = read_line(&mut reader, number == 1).map_err(|f| f.at(&place));
        let input = line.transpose().map(|line| line.map(|text| Input { text, pair: None, place }));
        let Some(input) = input else { return };
        let last = input.is_err();
        if sender.send(input).is_err() || last {
            return;
        }
    }
}

/// One line without its end; `None` at the end of the file.
fn read_line(reader: &mut impl BufRead, first: bool) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let failed = |e: std::io::Error| Failure::new(format!("cannot be read ({e})"));
    if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
        return Ok(None);
    }
    if bytes.pop_if(|b| *b == b'\n').is_none() && bytes.len() as u64 == LONGEST_LINE {
        return Err(Failure::new("longer than 64 MiB; is it a text file?"));
    }
    bytes.pop_if(|b| *b == b'\r');
    let text = String::from_utf8(bytes).map_err(|e| {
        Failure::new(format!("not valid UTF-8 (byte {} of the line)", e.utf8_error().valid_up_to() + 1))
    })?;
    Ok(Some(if first { text.trim_start_matches('\u{feff}').to_string() } else { text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut inputs: Inputs, budget: usize) -> (Vec<Vec<String>>, Option<Failure>) {
        let mut batches = Vec::new();
        loop {
            match inputs.batch(budget, |input| Ok((input.text.clone(), input.text.len()))) {
                Ok(batch) if batch.is_empty() => return (batches, None),
                Ok(batch) => batches.push(batch),
                Err(failure) => return (batches, Some(failure)),
            }
        }
    }

    #[test]
    fn a_text_in_the_models_place_has_spaces() {
        let taken = |name: &str| {
            let mut model = Some(name.to_string());
            (text_first(&mut model), model)
        };
        assert_eq!(taken("a fine film"), (Some("a fine film".to_string()), None));
        assert_eq!(taken("org/name"), (None, Some("org/name".to_string())));
        assert_eq!(text_first(&mut None), None);
    }

    #[test]
    fn batches_end_when_the_budget_is_spent() {
        let texts: Vec<String> = ["aaa", "bbb", "ccc", ""].map(String::from).to_vec();
        let (batches, failure) = all(Inputs::from_texts(&texts), 4);
        assert_eq!(batches, [vec!["aaa", "bbb"], vec!["ccc", ""]]);
        assert!(failure.is_none());
    }

    #[test]
    fn lines_lose_their_ends_and_nothing_else() {
        let (batches, failure) = all(Inputs::from_lines(&b"\xef\xbb\xbfone\r\n\n two \nlast"[..], "stdin"), 1000);
        assert_eq!(batches.concat(), ["one", "", " two ", "last"]);
        assert!(failure.is_none());
    }

    #[test]
    fn what_precedes_a_bad_line_is_handed_out_first() {
        let (batches, failure) = all(Inputs::from_lines(&b"good\nbad \xff\nnever"[..], "stdin"), 1000);
        assert_eq!(batches.concat(), ["good"]);
        assert_eq!(failure.unwrap().message(), Some("stdin line 2: not valid UTF-8 (byte 5 of the line)"));
    }
}
