//! Causal language models: text that goes on from a prompt, shown as it is made.

use super::{Item, Session, named};
use crate::args::positive;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::interrupt;
use clap::Args;
use serde::Serialize;
use sparing_engine::GenerateOptions;

/// How to generate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generation")]
pub struct GenerateArgs {
    /// Stop after this many tokens
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = positive)]
    max_new_tokens: usize,

    /// 0: always the likeliest token; 1: as the model's probabilities say; between: more careful than that
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature, allow_negative_numbers = true)]
    temperature: f32,

    /// Choose among this many likeliest tokens only; 0 means all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,

    /// Choose among the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = share, allow_negative_numbers = true)]
    top_p: f32,

    /// Seed of the choice; the same seed gives the same text
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(t) if (0.0..=100.0).contains(&t) => Ok(t),
        _ => Err("a number from 0 to 100 is expected".to_string()),
    }
}

fn share(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(p) if p > 0.0 && p <= 1.0 => Ok(p),
        _ => Err("a number above 0 and up to 1 is expected".to_string()),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    generated: &'a str,
    new_tokens: usize,
    /// `end`: the model ended the text; `length`: as many tokens as asked for, or as fit; `interrupted`: Ctrl-C.
    stopped: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// Goes on from every prompt, one after the other.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let args = &session.args.generate;
    if args.temperature > 0.0 && !session.args.json {
        console::note(&format!("seed {}", args.seed));
    }
    loop {
        let batch = inputs.batch(1, |input| session.encode(input))?;
        if batch.is_empty() {
            return Ok(());
        }
        for item in &batch {
            one(session, item, out)?;
            out.flush()?;
        }
    }
}

fn one(session: &Session<'_>, item: &Item, out: &mut Out) -> Result<(), Failure> {
    let args = &session.args.generate;
    let options = GenerateOptions {
        max_new_tokens: args.max_new_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: args.seed,
        stop: session.tokenizer.end_id().into_iter().collect(),
    };
    let json = session.args.json;
    if !json {
        out.text(&out.paint.faint(&item.input.text))?;
        out.flush()?;
    }
    let mut decode = session.tokenizer.stream(true);
    let mut generated = String::new();
    let mut failed = None;
    let mut each = |id: u32| {
        let shown = decode(id).map_err(Failure::from).and_then(|piece| {
            let piece = piece.unwrap_or_default();
            generated += &piece;
            if json { Ok(()) } else { out.text(&piece).and_then(|()| out.flush()) }
        });
        failed = shown.err();
        failed.is_none() && !interrupt::asked()
    };
    let tokens = session
        .engine
        .generate(&item.encoded.sequence.ids, &options, &mut each)
        .map_err(|e| Failure::from(e).at(named(&item.input)))?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    // The token that ends a text is not handed out: fewer than asked for, and room for more, means it came.
    let room =
        session.model.architecture.max_tokens.is_none_or(|most| item.encoded.sequence.ids.len() + tokens.len() < most);
    let stopped = if interrupt::asked() {
        "interrupted"
    } else if tokens.len() < args.max_new_tokens && room {
        "end"
    } else {
        "length"
    };
    if !json {
        return out.line("");
    }
    let seed = (args.temperature > 0.0).then_some(args.seed);
    out.json(&item.line(Answer { generated: &generated, new_tokens: tokens.len(), stopped, seed }))
}
