//! Which models of GPU a text may mean: names of the table, names that drivers print, and names that people type.
//!
//! ```text
//! NVIDIA A100-SXM4-80GB   a 100 │ sxm │ 80gb         number of the model │ words in which models of this number differ
//! RTX 4090, 4090          [rtx] 4090 │
//! H100                    h 100 │                    three models: SXM, PCIe, NVL
//! ```
//!
//! The number of the model has to be in the text. Among the rows of that number those are meant that share most words with the text, and
//! of these the ones with the fewest words of their own. A form factor that a row does not have rules the row out. A variant in memory is
//! meant only if the text has its GB, or its whole name.

use super::gpus::{all, of_printed_name, Gpu};

/// Words of makers, brands and generations, in which no models differ.
const NOISE: [&str; 14] = [
    "nvidia",
    "amd",
    "tesla",
    "geforce",
    "instinct",
    "quadro",
    "generation",
    "edition",
    "gpu",
    "gpus",
    "hbm",
    "die",
    "one",
    "blackwell",
];

/// How GPUs are fitted.
const FORMS: [&str; 4] = ["sxm", "pcie", "nvl", "oam"];

/// Divides a text into runs of letters and runs of digits, in small letters. `80 GB` is one word, and numbers behind SXM, HBM and PCIe
/// are none. `rtx` is a word of its own, as in RTXPRO6000.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    for letter in text.chars().flat_map(char::to_lowercase) {
        let kind = (letter.is_alphanumeric()).then_some(letter.is_numeric());
        match words.last_mut().filter(|word| kind.is_some() && kind == before && *word != "rtx") {
            Some(word) => word.push(letter),
            None if kind.is_some() => words.push(letter.to_string()),
            None => (),
        }
        before = kind;
    }
    let mut joined: Vec<String> = Vec::with_capacity(words.len());
    let mut last = String::new();
    for word in words {
        let is_number = word.starts_with(|letter: char| letter.is_ascii_digit());
        match joined.last_mut() {
            Some(number) if ["g", "gb"].contains(&word.as_str()) && number.parse::<u32>().is_ok() => {
                number.push_str("gb")
            }
            _ if is_number && word.len() == 1 && ["sxm", "hbm", "pcie", "gen"].contains(&last.as_str()) => (),
            _ => joined.push(word.clone()),
        }
        last = word;
    }
    joined
}

/// A model as a text may name it.
struct NamedGpu {
    gpu: &'static Gpu,
    /// The number of the model with what stands before it, as `h 100`.
    number: Vec<String>,
    /// The words in which it differs from other models of this number.
    own: Vec<String>,
}

impl NamedGpu {
    fn of(gpu: &'static Gpu) -> Self {
        let mut name = words(&gpu.name);
        name.retain(|word| word != "quadro");
        let is_number = |word: &String| word.starts_with(|letter: char| letter.is_ascii_digit());
        let end = name.iter().position(is_number).map_or(name.len(), |at| at + 1);
        let number: Vec<String> = name[..end].to_vec();
        let mut own: Vec<String> = name[end..].iter().cloned().chain(words(&gpu.title)).collect();
        own.retain(|word| !NOISE.contains(&word.as_str()) && !number.contains(word));
        own.sort_unstable();
        own.dedup();
        Self { gpu, number, own }
    }

    /// Returns the words of a text that are not the number of this model, and how many are; none if the number is not there.
    fn others(&self, text: &[String]) -> Option<(usize, Vec<String>)> {
        let shortest = if self.number[0] == "rtx" { self.number.len() - 1 } else { 0 };
        (0..=shortest).find_map(|skipped| {
            let number = &self.number[skipped..];
            let at = text.windows(number.len()).position(|window| window == number)?;
            // `L4000` is no 4000.
            let is_alone =
                skipped == 0 || at == 0 || ["rtx", "pro", "nvidia", "geforce", "x"].contains(&text[at - 1].as_str());
            let at = Some(at).filter(|_| is_alone)?;
            Some((number.len(), text[..at].iter().chain(&text[at + number.len()..]).cloned().collect()))
        })
    }

    fn is_ruled_out(&self, others: &[String]) -> bool {
        let has_form = self.own.iter().any(|word| FORMS.contains(&word.as_str()));
        let lacks = |form: &String| {
            FORMS.contains(&form.as_str()) && !self.own.contains(form) && (has_form || self.gpu.has_soldered_nvlinks())
        };
        let is_variant = self.gpu.variant_of.is_some();
        let memory = self.own.iter().find(|word| word.ends_with("gb"));
        others.iter().any(lacks) && !others.contains(&"oam".to_owned())
            || is_variant && !memory.is_some_and(|memory| others.contains(memory))
    }
}

/// Returns the models that a text may mean, in the order of the table: none if it names no model, several if it fits several.
pub fn gpus_called(text: &str) -> Vec<&'static Gpu> {
    let is_whole = |name: &String| name.eq_ignore_ascii_case(text.trim());
    if let Some(gpu) = all().iter().find(|gpu| is_whole(&gpu.name) || is_whole(&gpu.title)) {
        return vec![gpu];
    }
    let text_words = words(text);
    let rows = all().iter().map(NamedGpu::of);
    let called = rows.filter_map(|row| {
        let (length, others) = row.others(&text_words).filter(|(_, others)| !row.is_ruled_out(others))?;
        let shared = row.own.iter().filter(|word| others.contains(word)).count();
        Some(((length, shared, usize::MAX - (row.own.len() - shared)), row.gpu))
    });
    let called: Vec<_> = called.collect();
    let best = called.iter().map(|(score, _)| score).max();
    let found: Vec<&'static Gpu> =
        called.iter().filter(|(score, _)| Some(score) == best).map(|(_, gpu)| *gpu).collect();
    match (found.as_slice(), of_printed_name(text)) {
        ([_], _) if !text_words.iter().any(|word| word == "quadro") => found,
        (_, Some(printed)) => vec![printed],
        (_, None) => found,
    }
}

#[cfg(test)]
mod tests {
    use super::gpus_called;
    use crate::hardware::gpus::all;

    #[test]
    fn every_model_is_called_by_its_name_its_title_and_what_drivers_print() {
        for gpu in all() {
            let called = |text: &str| gpus_called(text).iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>();
            for text in [&gpu.name, &gpu.title, &gpu.name.to_uppercase()] {
                assert!(called(text).contains(&gpu.name.as_str()), "{text}: {:?}", called(text));
            }
            for name in &gpu.known_by.names {
                assert!(called(&format!("NVIDIA {name}")).contains(&gpu.name.as_str()), "{name}: {:?}", called(name));
            }
        }
    }

    #[test]
    fn texts_name_the_models_that_they_can_mean() {
        for (text, models) in [
            ("H100", "h100-sxm h100-pcie h100-nvl"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("H100 SXM5", "h100-sxm"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("h100 nvl", "h100-nvl"),
            ("A100-SXM4-80GB", "a100-sxm"),
            ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
            ("A100 80GB PCIe", "a100-pcie"),
            ("H200", "h200"),
            ("H200 NVL", "h200-nvl"),
            ("H800 PCIe", ""),
            ("Quadro RTX 6000", "quadro-rtx-8000"),
            ("4090", "rtx4090"),
            ("RTX 4090 D", "rtx4090d"),
            ("L40", "l40"),
            ("L40S", "l40s"),
            ("Tesla V100-SXM2-32GB", "v100-sxm"),
            ("v100-sxm2-16gb", "v100-sxm-16gb"),
            ("MI300X OAM", "mi300x"),
            ("mi300", "mi300x"),
            ("NVIDIA GB200", "gb200"),
            ("B200", "b200"),
            ("GH200 480GB", "gh200"),
            ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
            ("NVIDIA L4000", ""),
            ("NVIDIA T400", ""),
            ("GTX 1080", ""),
            ("a node", ""),
        ] {
            let found: Vec<&str> = gpus_called(text).iter().map(|gpu| gpu.name.as_str()).collect();
            assert_eq!(found.join(" "), models, "{text}");
        }
    }
}
