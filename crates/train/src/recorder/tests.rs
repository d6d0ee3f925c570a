//! Trainings whose updates are repeated by the GPU of this build end where those end that are done step by step.

use crate::distill::{Distilling, Guidance, Teaching, Texts};
use crate::feed::{Form, Moment};
use crate::gpu::fused::tests::gpu;
use crate::objective::{Loss, Objective, Pass, Supervised, lengths};
use crate::ops::tests::fixtures;
use crate::trainer::{Finish, TrainOptions, train};
use crate::{Example, Mapping, Network, Parameters, Target};
use burn::tensor::{Device, Tensor};
use sparing_model::{Error, Functions, HeadKind, Model, Sequence, SoftmaxNetwork};
use std::collections::BTreeMap;

/// Texts of several lengths and what the head is to say of them; `None`: every row has an answer of its own.
fn texts(model: &Model) -> Option<Vec<Example>> {
    let labels = model.architecture.head.labels.len();
    let example = |i: usize| {
        let n = 3 + i * 5 % 8;
        let ids: Vec<u32> = (0..n as u32).map(|t| 1 + (t * 7 + i as u32) % 20).collect();
        let target = match model.architecture.head.kind {
            HeadKind::Classify => Target::Class(i % labels),
            HeadKind::MultiLabel => Target::Labels(vec![i % labels]),
            HeadKind::Regress => Target::Score(i as f32 / 5.0),
            HeadKind::Answer => Target::Span(1, 2),
            _ => return None,
        };
        Some(Example { sequence: Sequence { ids, types: vec![0; n] }, target })
    };
    (0..10).map(example).collect()
}

/// The parameters after a few updates, and how many of those were repetitions.
fn trained(model: &Model, objective: &dyn Objective, steps: u64, record: bool) -> (Vec<(String, Vec<f32>)>, Finish) {
    let device = gpu().autodiff();
    let mut parameters = Parameters::from_weights(&model.weights, &device).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let work = crate::checkpoint::Work::new(folder.path()).unwrap();
    let options = TrainOptions { steps: Some(steps), batch: 4, dropout: 0.1, record, ..TrainOptions::default() };
    let finish = train(BTreeMap::new(), &mut parameters, objective, &options, &work, None, &mut |_| true).unwrap();
    let numbers = |p: &crate::Parameter| p.value.clone().inner().into_data().try_into_vec_as::<f32>().unwrap();
    (parameters.iter().map(|(name, p)| (name.to_string(), numbers(p))).collect(), finish)
}

fn compare(name: &str, model: &Model, objective: &dyn Objective, steps: u64, repeated: u64) {
    let (slow, finish) = trained(model, objective, steps, false);
    assert_eq!(finish.repeated, 0, "{name}");
    let (fast, finish) = trained(model, objective, steps, true);
    // The very first lays the parameters end to end; of every form two updates come next, and a third is recorded.
    assert_eq!(finish.repeated, repeated, "{name}: {:?}", finish.unrecorded);
    let begun = Parameters::from_weights(&model.weights, &Device::flex()).unwrap();
    let mut moved = 0f32;
    for ((tensor, fast), (_, slow)) in fast.iter().zip(&slow) {
        let far = fast.iter().zip(slow).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Adam moves what has next to no gradient by as much as all else.
        assert!(far < 1e-5, "{name} {tensor}: {far:e}");
        let was = begun.get(tensor).unwrap().value.clone().into_data().try_into_vec_as::<f32>().unwrap();
        moved = was.iter().zip(slow).map(|(a, b)| (a - b).abs()).fold(moved, f32::max);
    }
    assert!(moved > 1e-4, "{name}: {moved:e}");
}

#[test]
fn fine_tuning() {
    let mut compared = 0;
    for (name, model) in fixtures() {
        let network = Network::new(&model.architecture);
        let Some(examples) = texts(&model) else { continue };
        if network.is_recordable() {
            compare(&name, &model, &Supervised::new(&network, &examples, None), 15, 15 - 1 - 3 - 3);
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared} models");
}

/// A student that learns from a teacher's answers and from what is inside of it, on a task and on plain text. Its layers are guided for
/// some updates, wholly, then in part.
fn transfer(texts: &Texts<'_>, fixture: &str, keys: Option<usize>, guided: u64, steps: u64, repeated: u64) {
    let found = fixtures().into_iter().find(|(name, _)| name.ends_with(fixture));
    let (name, teacher) = found.unwrap();
    let functions = Functions::all(SoftmaxNetwork { tokens: 16, shared: false, keys });
    let fill = &mut |name: &str, shape: &[usize]| {
        let value = if name.ends_with("running_phi") { 1.0 } else { 0.01 };
        vec![value; shape.iter().product()]
    };
    let student = teacher.with_functions(&functions, fill).unwrap();
    let answers = if matches!(texts, Texts::Pieces(..)) { 0.0 } else { 1.0 };
    let objective = Distilling {
        student: &Network::new(&student.architecture),
        teacher: &Network::new(&teacher.architecture),
        teacher_parameters: Parameters::from_weights(&teacher.weights, &gpu()).unwrap(),
        lengths: match texts {
            Texts::Examples(examples) => lengths(examples),
            Texts::Pieces(pieces, _) => pieces.iter().map(|piece| piece.ids.len()).collect(),
        },
        texts: texts.clone(),
        teaching: Teaching {
            hard: 0.1 * answers,
            soft: 0.9 * answers,
            divergence: 0.0,
            temperature: 15.0,
            logits: 0.0,
            hidden: 1.0,
            attention: if keys.is_some() { 0.0 } else { 1.0 },
            attention_divergence: 0.0,
            mapping: Mapping::Uniform,
        },
        guidance: Guidance::Teacher(guided),
        norm_warmup: None,
        hook: None,
    };
    compare(&name, &student, &objective, steps, repeated);
}

#[test]
fn transfer_on_a_task() {
    let (_, teacher) = fixtures().into_iter().find(|(name, _)| name.ends_with("/bert-classify")).unwrap();
    let examples = texts(&teacher).unwrap();
    for keys in [None, Some(4)] {
        transfer(&Texts::Examples(&examples), "/bert-classify", keys, 0, 15, 8);
    }
}

/// Full texts, so that there is no padding; eight updates wholly guided, eight in part, eight not.
#[test]
fn transfer_on_plain_text() {
    let (_, teacher) = fixtures().into_iter().find(|(name, _)| name.ends_with("/bert-mlm-text")).unwrap();
    let piece = |i: u32| Sequence { ids: (0..16).map(|t| 90 + (t * 3 + i) % 20).collect(), types: vec![0; 16] };
    let pieces: Vec<Sequence> = (0..12).map(piece).collect();
    let masking = crate::Masking::new(teacher.tokenizer().unwrap()).unwrap();
    transfer(&Texts::Pieces(&pieces, &masking), "/bert-mlm-text", None, 16, 24, 24 - 1 - 3 * 3);
}

/// Tells the device something that a repetition could not be told anew.
struct Careless<'a>(Supervised<'a>);

impl Objective for Careless<'_> {
    fn lengths(&self) -> &[usize] {
        self.0.lengths()
    }

    fn loss(&self, parameters: &Parameters, examples: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let Loss { value, tokens } = self.0.loss(parameters, examples, pass)?;
        let scale = Tensor::<1>::from_data([1.0 + pass.step as f32], &parameters.device().clone().inner());
        Ok(Loss { value: value * scale.autodiff(), tokens })
    }

    fn recordable(&self, examples: &[usize], pass: &Pass, device: &Device) -> Result<Option<(Form, Moment)>, Error> {
        self.0.recordable(examples, pass, device)
    }
}

/// Where recording fails, or a repetition finds something else, training goes on step by step as if nothing had been tried.
#[test]
fn what_cannot_be_repeated_is_done_step_by_step() {
    let (name, model) = fixtures().into_iter().find(|(name, _)| name.ends_with("/bert-classify")).unwrap();
    let (network, examples) = (Network::new(&model.architecture), texts(&model).unwrap());
    let objective = Careless(Supervised::new(&network, &examples, None));
    let (slow, _) = trained(&model, &objective, 15, false);
    let (fast, finish) = trained(&model, &objective, 15, true);
    assert!(finish.repeated == 0 && finish.unrecorded.is_some(), "{finish:?}");
    for ((tensor, fast), (_, slow)) in fast.iter().zip(&slow) {
        let far = fast.iter().zip(slow).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-5, "{name} {tensor}: {far:e}");
    }
}
