//! What a model can be asked for, which its head decides.

use crate::error::Refusal;
use sparing_model::{Head, HeadKind};

/// What a model can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Labels with scores: `/predict`.
    Classifier,
    /// One number for a pair of texts: `/rerank`, and `/predict`.
    Reranker,
    /// Vectors: `/embed` and what is built on it.
    Embedder,
    /// Text that goes on: `/generate`.
    Generator,
    /// Answers per token: only by raw outputs, `/v2/models/…/infer`.
    Tokens,
}

impl Role {
    /// The role of a head.
    pub(crate) fn of(head: &Head) -> Role {
        match head.kind {
            HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress if head.labels.len() == 1 => Role::Reranker,
            HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress => Role::Classifier,
            HeadKind::Hidden | HeadKind::Embed { .. } => Role::Embedder,
            HeadKind::CausalLm => Role::Generator,
            HeadKind::TokenClassify | HeadKind::Answer | HeadKind::MaskedLm => Role::Tokens,
        }
    }

    /// The word in `/info`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Classifier => "classifier",
            Role::Reranker => "reranker",
            Role::Embedder => "embedding",
            Role::Generator => "generator",
            Role::Tokens => "tokens",
        }
    }

    /// Refuses what this role does not do.
    pub(crate) fn require(self, any: &[Role]) -> Result<(), Refusal> {
        if any.contains(&self) {
            return Ok(());
        }
        let wanted = match any.first() {
            Some(Role::Classifier) => "a classifier model",
            Some(Role::Reranker) => "a re-ranker model",
            Some(Role::Generator) => "a model that generates text",
            _ => "an embedding model",
        };
        Err(Refusal::backend(format!("model is not {wanted}; it is a {} model", self.name())))
    }
}
