//! Short trainings.

use super::*;
use crate::attention::{Kind, catalogue};
use burn::tensor::Device;
use sparing_tasks::lra::{Part, Set, Task, Wanted, make};

fn short() -> (Training, Data) {
    let recipes = recipes("small", None).unwrap();
    let mut training = Training::of(&recipes, Task::Listops).unwrap().clone();
    (training.length, training.steps, training.batch) = (32, 150, 16);
    training.schedule.rate = 2e-3;
    let wanted = Wanted { examples: 1000, length: 30, shortest: 4, seed: 0 };
    let part = |part| make(Task::Listops, part, &wanted, None, &mut |_| true).unwrap();
    let data = Data { train: part(Part::Train), dev: part(Part::Dev), test: part(Part::Test) };
    (training, data)
}

fn job(training: Training, name: &str, kind: Kind) -> Job {
    Job {
        task: Task::Listops,
        configuration: "small".into(),
        training,
        attention: name.into(),
        kind,
        seed: 0,
        evaluate_every: 75,
        checkpoint_steps: 1000,
        stop_at: None,
        deadline: None,
    }
}

/// On short expressions a short training is better than chance (one in ten) by far, and the loss falls below that of the
/// labels' frequencies alone.
#[test]
fn training_learns() {
    let (training, data) = short();
    for (name, kind) in catalogue().unwrap().into_iter().filter(|(name, _)| ["full", "local"].contains(&name.as_str()))
    {
        let folder = tempfile::tempdir().unwrap();
        let job = job(training.clone(), &name, kind);
        let record = run(&job, &data, folder.path(), ("cpu", Device::flex()), &|| 0, &mut |_| true).unwrap().unwrap();
        assert!(record.score.unwrap() > 0.2 && record.late_loss.unwrap() < 2.2, "{record:?}");
        assert_eq!((record.steps, record.tested), (150, 100));
        assert_eq!(Record::read(folder.path()).unwrap(), Some(record));
    }
}

/// Stopped and gone on, a training comes to the same numbers.
#[test]
fn training_goes_on_where_it_stopped() {
    let (mut training, data) = short();
    training.steps = 12;
    let (_, kind) = catalogue().unwrap().into_iter().find(|(name, _)| name == "full").unwrap();
    let whole = tempfile::tempdir().unwrap();
    let parts = tempfile::tempdir().unwrap();
    let cpu = || ("cpu", Device::flex());
    let job = job(training, "full", kind);
    let once = run(&job, &data, whole.path(), cpu(), &|| 0, &mut |_| true).unwrap().unwrap();
    let first = Job { stop_at: Some(5), ..job.clone() };
    let early = run(&first, &data, parts.path(), cpu(), &|| 0, &mut |_| true).unwrap().unwrap();
    assert_eq!(early.steps, 5);
    let late = run(&job, &data, parts.path(), cpu(), &|| 0, &mut |_| true).unwrap().unwrap();
    assert_eq!((late.score, late.late_loss, late.steps), (once.score, once.late_loss, 12));
}

/// At its deadline a training scores what it has, says so in its record and can go on.
#[test]
fn a_deadline_ends_with_a_record() {
    let (mut training, data) = short();
    training.steps = 6;
    let (_, kind) = catalogue().unwrap().into_iter().find(|(name, _)| name == "linear").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cpu = || ("cpu", Device::flex());
    let whole = job(training, "linear", kind);
    let late = Job { deadline: Some(std::time::Instant::now()), ..whole.clone() };
    let first = run(&late, &data, folder.path(), cpu(), &|| 0, &mut |_| true).unwrap().unwrap();
    assert_eq!((first.steps, first.planned, first.best_step), (1, 6, 1));
    assert!(first.score.is_some() && first.dev.is_some() && first.late_loss.is_some());
    assert_eq!(Record::read(folder.path()).unwrap(), Some(first));
    let last = run(&whole, &data, folder.path(), cpu(), &|| 0, &mut |_| true).unwrap().unwrap();
    assert_eq!(last.steps, 6);
}

/// A training that is killed has left a record of how far it was.
#[test]
fn a_record_is_there_while_training_goes_on() {
    let (mut training, data) = short();
    training.steps = 4;
    let (_, kind) = catalogue().unwrap().into_iter().find(|(name, _)| name == "linear").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let job = Job { evaluate_every: 2, ..job(training, "linear", kind) };
    let mut stop = |event: &crate::Event| !matches!(event, crate::Event::Step { step: 3, .. });
    let none = run(&job, &data, folder.path(), ("cpu", Device::flex()), &|| 7, &mut stop).unwrap();
    assert_eq!(none, None);
    let left = Record::read(folder.path()).unwrap().unwrap();
    assert_eq!((left.steps, left.best_step, left.score, left.peak_bytes), (2, 2, None, 7));
    assert!(left.dev.is_some() && left.late_loss.is_some());
}

/// Without positions full attention does not know in which order tokens stand; with them it does.
#[test]
fn positions_may_be_none() {
    let recipes = recipes("small", None).unwrap();
    let full: Kind = serde_json::from_str(r#"{"kind":"full"}"#).unwrap();
    let mut training = Training::of(&recipes, Task::Text).unwrap().clone();
    training.length = 8;
    let orders: [&[u8]; 2] = [b"abcdefgh", b"hgfedcba"];
    for (positions, alike) in [(Positions::None, true), (Positions::Sine, false), (Positions::Learned, false)] {
        training.encoder.positions = positions;
        let encoder = Encoder::new(&training, &full, Task::Text).unwrap();
        let parameters = encoder.parameters(0, &Device::flex());
        let mut set = Set::new(Task::Text);
        orders.iter().for_each(|text| set.push(&[text], 0));
        let examples = [set.example(0), set.example(1)];
        let scores = encoder.forward(&parameters, &examples, Mode { dropout: 0.0, seed: 0 }).unwrap();
        let scores = scores.try_into_vec_as::<f32>().unwrap();
        let apart = (0..2).map(|class| (scores[class] - scores[2 + class]).abs()).fold(0.0, f32::max);
        assert_eq!(apart < 1e-6, alike, "{positions:?}: {apart}");
    }
}

/// A record is of one training: other settings or other examples are refused, and so is a record that does not say.
#[test]
fn a_record_of_other_settings_is_refused() {
    let (mut training, data) = short();
    training.steps = 1;
    let (_, kind) = catalogue().unwrap().into_iter().find(|(name, _)| name == "linear").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = job(training, "linear", kind);
    let record = run(&first, &data, folder.path(), ("cpu", Device::flex()), &|| 0, &mut |_| true).unwrap().unwrap();
    let refused = |job: &Job, data: &Data| {
        let message = Record::of(folder.path(), job, &Settings::of(&job.training, data)).unwrap_err().to_string();
        assert!(message.contains("--out"), "{message}");
        assert!(run(job, data, folder.path(), ("cpu", Device::flex()), &|| 0, &mut |_| true).is_err());
        message
    };
    let mut faster = first.clone();
    faster.training.schedule.rate = 0.5;
    assert!(refused(&faster, &data).contains("the rate"));
    let mut less = short().1;
    less.test.thin(2);
    assert!(refused(&first, &less).contains("the test examples"));
    assert_eq!(Record::of(folder.path(), &first, &Settings::of(&first.training, &data)).unwrap(), Some(record.clone()));
    // As earlier versions wrote it: still a record, of nobody knows what.
    let mut old = serde_json::to_value(&record).unwrap();
    old.as_object_mut().unwrap().remove("settings");
    std::fs::write(folder.path().join(RECORD), old.to_string()).unwrap();
    assert_eq!(Record::read(folder.path()).unwrap(), Some(Record { settings: None, ..record }));
    assert!(refused(&first, &data).contains("earlier version"));
}
