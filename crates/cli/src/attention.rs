//! Options about how precisely attention's values are computed.

use crate::failure::Failure;
use clap::Args;
use sparing_engine::{Options, Spending};
use sparing_model::{AttentionPlan, Calibration, Length, Model};
use std::path::PathBuf;
use std::sync::Arc;

/// How precisely attention's values are computed, for which tokens, over which keys.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Attention")]
pub struct AttentionArgs {
    /// How values are computed: exact; mca:ALPHA (sampled as the paper does); calibrated:ALPHA, systematic:ALPHA,
    /// graded:ALPHA (better for the same cost, after `sparing calibrate`); mean:ALPHA, int8:ALPHA (plain rivals). Settings
    /// follow after commas: seed=N, pooling=max|mean|median, padded=128 (as the authors count), strict (never fall back to
    /// the exact product), layer3=0.2, layer0=exact. Tokens that bring less to others than a share of what tokens do on average
    /// cost less too: drop=0.6 (they leave; for heads that read the first token), skip=0.6 (they pass by the feed-forward
    /// block), drop0=0 (never in layer 0); such as exact,drop=0.6. Or so many tokens of an input stay: keep=0.8 (a share), keep2=16
    /// (a count, from layer 2 on); or a share of them is merged into others that are like them: merge=0.1, merge0=0. Attention over a few keys of every head: keys=64, or keys=auto
    /// (16, 64 or 128 by length), by=sign|norm|value|grouped, ends (keep first token and separators), threshold=1 (of value),
    /// keys0=exact, keys3=32; sign:64 is short for exact,keys=64 [default: what the model's plan says, else exact]
    #[arg(long, value_name = "HOW", value_parser = plan)]
    pub attention: Option<AttentionPlan>,

    /// The calibration to use [default: calibration.safetensors in the model directory]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
}

/// Reads `--attention`.
pub fn plan(text: &str) -> Result<AttentionPlan, String> {
    // Clap names the flag and the value itself.
    let strip =
        |e: sparing_model::Error| e.to_string().trim_start_matches(&format!("--attention {text}: ")).to_string();
    text.parse().map_err(strip)
}

impl AttentionArgs {
    /// Adds the choice to an engine's options.
    pub fn apply(&self, options: Options, model: &Model) -> Result<Options, Failure> {
        let calibration = read_calibration(&self.calibration, model)?;
        Ok(Options { attention: self.attention.clone(), calibration, ..options })
    }
}

/// The calibration a user names.
pub fn read_calibration(path: &Option<PathBuf>, model: &Model) -> Result<Option<Arc<Calibration>>, Failure> {
    Ok(match path {
        Some(path) => Some(Arc::new(Calibration::read(path, model)?)),
        None => None,
    })
}

/// One line on what was spent: real tokens first, then everything around them.
pub fn describe(attention: &AttentionPlan, spent: &Spending) -> String {
    if attention.mca.is_none() {
        return format!("attention {attention}: whole model {:.2}x fewer FLOPs on real tokens", spent.model_ratio());
    }
    let mut line = format!(
        "attention {attention}: value encoding {:.2}x fewer FLOPs on real tokens, A·X·W {:.2}x, whole model {:.3}x; {:.0}% of tokens exact",
        spent.values_ratio(),
        spent.attention_ratio(),
        spent.model_ratio(),
        100.0 * spent.full as f64 / spent.tokens.max(1) as f64
    );
    if attention.mca.as_ref().is_some_and(|mca| mca.length != Length::Actual) {
        line += &format!("; as the authors count, padding included: {:.2}x", spent.authors_ratio());
    }
    line
}
