//! What the base model's card says in its front matter.

/// What is kept of the base model's card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BaseCard {
    /// The licence's identifier.
    pub license: Option<String>,
    /// Its name, where the identifier is `other`.
    pub license_name: Option<String>,
    /// Where its text is, where the identifier is `other`.
    pub license_link: Option<String>,
    /// What it was made from itself.
    pub base_model: Option<String>,
    /// Languages of the model.
    pub language: Vec<String>,
    /// What it was trained on.
    pub datasets: Vec<String>,
    /// What it does, in the Hub's words: `text-classification`.
    pub pipeline_tag: Option<String>,
    /// The author's tags.
    pub tags: Vec<String>,
}

impl BaseCard {
    /// Reads the front matter of a `README.md`: the plain keys and lists of it. Whatever is not understood is left out,
    /// since a card is a courtesy and no input of the computation.
    pub fn parse(readme: &str) -> BaseCard {
        let mut card = BaseCard::default();
        let mut lines = readme.trim_start_matches('\u{feff}').lines();
        if lines.next().map(str::trim_end) != Some("---") {
            return card;
        }
        let mut key = "";
        for line in lines.take_while(|line| line.trim_end() != "---") {
            let item = line.trim_start().strip_prefix("- ");
            match (item, line.split_once(':')) {
                (Some(item), _) => card.put(key, item),
                (None, Some((name, value))) if !line.starts_with([' ', '\t', '#']) => {
                    key = name.trim();
                    let value = value.trim();
                    match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
                        Some(list) => list.split(',').for_each(|item| card.put(key, item)),
                        None => card.put(key, value),
                    }
                }
                // Deeper than lists of words nothing is read.
                _ => key = "",
            }
        }
        card
    }

    fn put(&mut self, key: &str, value: &str) {
        let value = value.split(" #").next().unwrap_or_default().trim();
        let value = value.trim_matches(|c| c == '"' || c == '\'');
        if value.is_empty() || value.contains(": ") {
            return;
        }
        let value = value.to_owned();
        match key {
            "license" => self.license = Some(value),
            "license_name" => self.license_name = Some(value),
            "license_link" => self.license_link = Some(value),
            "base_model" => self.base_model = Some(value),
            "pipeline_tag" => self.pipeline_tag = Some(value),
            "language" => self.language.push(value),
            "datasets" => self.datasets.push(value),
            "tags" => self.tags.push(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_keys_and_lists_are_read() {
        let readme = "---\nlanguage: en\nbase_model: owner/name\ntags:\n- exbert\n  - \"a b\"\nlicense: apache-2.0 # as the code\ndatasets: [bookcorpus, 'wikipedia']\n\
                      model-index:\n- name: x\n  results:\n  - task:\n      type: y\n---\nlicense: mit\n";
        let card = BaseCard::parse(readme);
        assert_eq!(card.license.as_deref(), Some("apache-2.0"));
        assert_eq!((card.language, card.tags), (vec!["en".to_owned()], vec!["exbert".to_owned(), "a b".to_owned()]));
        assert_eq!(card.datasets, ["bookcorpus", "wikipedia"]);
        assert_eq!((card.pipeline_tag, card.base_model.as_deref()), (None, Some("owner/name")));
    }

    #[test]
    fn whatever_else_a_card_holds_is_left_out() {
        for readme in ["", "# A model", "---", "---\n- \n:\n::\n---", "no\n---\nlicense: mit\n---"] {
            assert_eq!(BaseCard::parse(readme), BaseCard::default(), "{readme:?}");
        }
    }
}
