//! The official files, where they are at hand: `$SPARING_SHARED/data`, or `shared/data` beside the repository.

use sparing_tasks::{Dataset, Label, Select, Split, Task};
use std::path::{Path, PathBuf};

/// A path under the shared data; says so and gives nothing if it is not there.
fn shared(path: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("SPARING_SHARED") {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

fn rows(task: Task, path: &Path, split: Split) -> usize {
    let data = Dataset::read(task, path, split, &Select::default()).unwrap();
    assert!(data.examples.iter().all(|e| !e.text.is_empty() && e.label != Label::None));
    data.examples.len()
}

#[test]
fn glue_has_its_official_sizes() {
    // QQP is a sample of 20,212 pairs, not the official split.
    for (task, folder, train, dev) in [
        (Task::Cola, "CoLA", 8551, 1043),
        (Task::Sst2, "SST-2", 67349, 872),
        (Task::Mrpc, "MRPC", 3668, 408),
        (Task::Stsb, "STS-B", 5749, 1500),
        (Task::Rte, "RTE", 2490, 277),
        (Task::Wnli, "WNLI", 635, 71),
        (Task::Qnli, "QNLI", 0, 5463),
        (Task::Qqp, "QQP", 15000, 5212),
    ] {
        let Some(root) = shared("glue") else { return };
        assert_eq!(rows(task, &root, Split::Dev), dev, "{folder} from the root");
        assert_eq!(rows(task, &root.join(folder), Split::Dev), dev, "{folder} from its folder");
        if train > 0 {
            assert_eq!(rows(task, &root, Split::Train), train, "{folder}");
        } else {
            assert!(Dataset::read(task, &root, Split::Train, &Select::default()).is_err());
        }
    }
}

#[test]
fn one_tasks_folder_is_not_anothers() {
    let Some(root) = shared("glue") else { return };
    for folder in ["SST-2", "MRPC", "RTE"] {
        let e = Dataset::read(Task::Cola, &root.join(folder), Split::Dev, &Select::default()).unwrap_err();
        assert!(e.to_string().contains("line 1"), "{e}");
    }
    let e = Dataset::read(Task::Rte, &root.join("SST-2"), Split::Dev, &Select::default()).unwrap_err();
    assert!(e.to_string().contains("not the official RTE file"), "{e}");
}

#[test]
fn the_built_in_extract_is_the_official_file() {
    let Some(root) = shared("glue") else { return };
    let official = Dataset::read(Task::Sst2, &root, Split::Dev, &Select::default()).unwrap();
    assert_eq!(official.examples, Dataset::builtin("sst2", &Select::default()).unwrap().examples);
}

#[test]
fn squad_has_all_questions_and_true_offsets() {
    for (split, name, count) in
        [(Split::Dev, "squad/dev_reconstructed.jsonl", 10570), (Split::Train, "squad/train_subset.jsonl", 3939)]
    {
        let Some(file) = shared(name) else { return };
        assert_eq!(rows(Task::Squad, &file, split), count);
        let folder = file.parent().unwrap();
        let data = Dataset::read(Task::Squad, folder, split, &Select::default()).unwrap();
        let placed = |e: &sparing_tasks::Example| match &e.label {
            Label::Answers(a) => a.iter().all(|a| a.start.is_some()),
            _ => false,
        };
        let all = data.examples.iter().filter(|e| placed(e)).count();
        assert!(all as f64 > 0.99 * count as f64, "{name}: {all} of {count} have true offsets");
    }
}

#[test]
fn texts_for_language_modelling() {
    for (folder, split, lines) in [
        ("ptb", Split::Train, 42068),
        ("ptb", Split::Dev, 3370),
        ("ptb", Split::Test, 3761),
        ("wikitext2", Split::Dev, 3760),
        ("wikitext2", Split::Test, 4358),
    ] {
        let Some(folder) = shared(folder) else { return };
        let data = Dataset::read(Task::Language, &folder, split, &Select::default()).unwrap();
        assert_eq!(data.examples[0].text.matches('\n').count(), lines, "{}", folder.display());
    }
}

#[test]
fn limits_read_less() {
    let Some(root) = shared("glue") else { return };
    let select = Select { limit: Some(10), ..Select::default() };
    assert_eq!(Dataset::read(Task::Sst2, &root, Split::Train, &select).unwrap().examples.len(), 10);
    let select = Select { sample: Some(10), seed: 5, ..Select::default() };
    let sampled = Dataset::read(Task::Sst2, &root, Split::Train, &select).unwrap();
    assert_eq!(sampled.examples.len(), 10);
    assert!(sampled.examples[9].line > 1000);
}
