//! What economised values do to one text: what is spent on every token, the error it makes, and whether the answer
//! stays.

mod answer;
mod bands;
mod picture;
mod print;
mod shades;
mod tokens;

use super::InspectArgs;
use crate::attention;
use crate::console::{self, Out};
use crate::failure::Failure;
use answer::Answer;
use serde::Serialize;
use sparing_engine::{Engine, LayerExamined, RunOptions, Spending};
use sparing_model::{Batch, Encoded, Executor, HeadKind, Mca, Model, Sampler};
use tokens::Token;

/// What was found.
#[derive(Debug, Serialize)]
struct Examined {
    model: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// How values were computed, as `--attention` says it.
    attention: String,
    seed: u64,
    precision: &'static str,
    threads: usize,
    isa: &'static str,
    tokens: Vec<Token>,
    layers: Vec<Layer>,
    /// Share of the exact cost of the value encoding, over all layers.
    share: f64,
    /// What the economised run spent.
    run: Run,
    answer: Answer,
    #[serde(skip)]
    sampler: Sampler,
    /// The line on what the run spent.
    #[serde(skip)]
    described: String,
}

/// One layer, computed both ways from the exact model's inputs.
#[derive(Debug, Serialize)]
struct Layer {
    layer: usize,
    /// `null`: the plan leaves the layer exact.
    alpha: Option<f32>,
    relative_error: f64,
    /// Mean over queries and heads.
    error: f64,
    /// Theorem 2: the paper's sampler stays below it on average. `null` for exact layers.
    bound: Option<f64>,
    /// Share of the exact cost, mean over tokens.
    share: f64,
    /// The same per token.
    spent: Vec<f32>,
}

/// FLOPs of the economised run. Budgets follow the inputs of each layer, which the layers before have changed: this is
/// close to what the layers say, and not the same.
#[derive(Debug, Serialize)]
struct Run {
    values_flops: u64,
    values_flops_exact: u64,
    values_ratio: f64,
    attention_ratio: f64,
    model_ratio: f64,
}

/// Examines a text, prints what was found and draws it.
pub(super) fn run(args: &InspectArgs, text: &str) -> Result<(), Failure> {
    let model = args.model.open()?;
    if let Some(why) = model.architecture.no_shares() {
        return Err(Failure::new(format!(
            "with a text, inspect shows what economised values do to it; {why}, so there is nothing to show; leave the text out"
        )));
    }
    let plan = args.attention.attention.as_ref().or(model.plan.attention.as_ref());
    let Some(mca) = plan.and_then(|plan| plan.mca.clone()) else {
        return Err(Failure::Usage(
            "with a text, inspect shows what economised values do to it, and here all are exact; give --attention, such as mca:0.4"
                .to_string(),
        ));
    };
    if args.pair.is_some() && model.architecture.head.kind == HeadKind::CausalLm {
        return Err(Failure::Usage("--pair: a model that generates text takes no second text".to_string()));
    }
    let encoded = model.tokenizer()?.encode(text, args.pair.as_deref(), None)?;
    if encoded.truncated {
        console::note(&format!("the text was cut to {} tokens", encoded.sequence.ids.len()));
    }
    let engine = Engine::compile(&model, &args.attention.apply(args.machine.options(), &model)?)?;
    let examined = examine(args, &model, &engine, &mca, text, encoded)?;
    if let Some(path) = &args.svg {
        picture::write(&examined, path)?;
    }
    let mut out = Out::new();
    if args.json {
        out.pretty(&examined)?
    } else {
        print::print(&examined, &mut out)?
    }
    out.flush()
}

fn examine(
    args: &InspectArgs,
    model: &Model,
    engine: &Engine,
    mca: &Mca,
    text: &str,
    encoded: Encoded,
) -> Result<Examined, Failure> {
    let batch = Batch { sequences: vec![encoded.sequence.clone()], ..Batch::default() };
    let (exact, examined) = engine.examine(&batch, &RunOptions::default())?;
    engine.reset_spending();
    let economised = engine.run(&batch)?;
    let spending = engine.spending();

    let texts = [Some(text), args.pair.as_deref()];
    let tokens = tokens::tokens(&encoded, texts);
    let layers: Vec<Layer> = (0..model.architecture.layers.len())
        .map(|layer| match examined.iter().find(|e| e.layer == layer) {
            Some(examined) => Layer::economised(examined, mca),
            None => Layer::exact(layer, tokens.len()),
        })
        .collect();
    let plan = engine.attention();
    Ok(Examined {
        model: args.model.name(),
        text: text.to_string(),
        pair: args.pair.clone(),
        truncated: encoded.truncated,
        attention: plan.to_string(),
        seed: mca.seed,
        precision: engine.precision().name(),
        threads: engine.threads(),
        isa: sparing_kernels::isa::active().name(),
        share: mean(layers.iter().map(|layer| layer.share)),
        answer: Answer::new(model, &encoded, texts, &exact, &economised)?,
        tokens,
        layers,
        run: Run::new(&spending),
        sampler: mca.sampler,
        described: attention::describe(plan, &spending),
    })
}

impl Layer {
    fn economised(examined: &LayerExamined, mca: &Mca) -> Layer {
        // Sums of rounded shares may miss one by a hair.
        let spent: Vec<f32> = examined.spent.iter().flatten().map(|share| share.clamp(0.0, 1.0)).collect();
        Layer {
            layer: examined.layer,
            alpha: mca.alpha_of(examined.layer),
            relative_error: examined.relative_error,
            error: examined.error,
            bound: Some(examined.bound),
            share: mean(spent.iter().map(|share| f64::from(*share))),
            spent,
        }
    }

    fn exact(layer: usize, tokens: usize) -> Layer {
        Layer { layer, alpha: None, relative_error: 0.0, error: 0.0, bound: None, share: 1.0, spent: vec![1.0; tokens] }
    }
}

impl Run {
    fn new(spending: &Spending) -> Run {
        Run {
            values_flops: spending.values,
            values_flops_exact: spending.values_exact,
            values_ratio: spending.values_ratio(),
            attention_ratio: spending.attention_ratio(),
            model_ratio: spending.model_ratio(),
        }
    }
}

impl Examined {
    /// What a token cost over all layers.
    fn share_of(&self, token: usize) -> f64 {
        mean(self.layers.iter().map(|layer| f64::from(layer.spent[token])))
    }

    /// What the bound belongs to.
    fn bound_words(&self) -> &'static str {
        if self.sampler == Sampler::Paper { "Theorem 2's bound" } else { "Theorem 2's bound (for mca)" }
    }
}

/// The mean, 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

/// An error for people: three digits, whatever its size.
fn small(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_string(),
        a if a < 1e-3 => format!("{x:.1e}"),
        a if a < 9.995 => format!("{x:.3}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}
