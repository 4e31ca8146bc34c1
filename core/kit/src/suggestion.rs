//! Suggestions for misspelled names, by edit distance.

/// The most names compared: a damaged log can invent any number.
const MAX_NAMES: usize = 4096;

/// Longer names are not typed by hand.
const MAX_LEN: usize = 200;

/// The most similar one of `known`, if any is near.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    nearest_of(word, known.iter().copied(), 1).pop()
}

/// At most `most` of `known` that are similar to `word`, the nearest first.
pub fn nearest_of<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str>,
    most: usize,
) -> Vec<&'k str> {
    let lower = word.to_lowercase();
    let near = |name: &'k str| {
        let far = strsim::damerau_levenshtein(&lower, &name.to_lowercase());
        let letters = word.chars().count().max(name.chars().count());
        (far <= letters.div_ceil(3)).then_some((far, name))
    };
    sorted(short(known).filter_map(near), most)
}

/// At most `most` of `known` that a pattern (a glob, or `re:` and a regular expression) nearly
/// matches: those similar to its longest literal part.
pub fn nearest_to_pattern<'k>(
    pattern: &str,
    known: impl IntoIterator<Item = &'k str>,
    most: usize,
) -> Vec<&'k str> {
    let is_regex = pattern.starts_with("re:");
    let text = pattern.strip_prefix("re:").unwrap_or(pattern);
    let special = |c: char| match is_regex {
        true => !c.is_alphanumeric() && !matches!(c, '_' | '-' | '/'),
        false => matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '\\'),
    };
    if !is_regex && !text.contains(special) {
        return nearest_of(text, known, most);
    }
    let literal = text.split(special).max_by_key(|part| part.chars().count()).unwrap_or_default();
    let literal: Vec<char> = literal.to_lowercase().chars().collect();
    if literal.len() < 2 {
        return Vec::new();
    }
    let near = |name: &'k str| {
        let far = nearest_window(&literal, name);
        (far <= literal.len() / 3).then_some((far, name))
    };
    let near: Vec<_> = short(known).filter_map(near).collect();
    // Short parts of names are often similar: only suggest the best.
    let best = near.iter().map(|(far, _)| *far).min();
    sorted(near.into_iter().filter(|(far, _)| Some(*far) == best), most)
}

/// The edit distance between `literal` and the nearest substring of `name` of about its length.
fn nearest_window(literal: &[char], name: &str) -> usize {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let distance = |part: &[char]| strsim::generic_damerau_levenshtein(literal, part);
    let sizes = literal.len() - 1..=literal.len() + 1;
    let windows = sizes.flat_map(|size| name.windows(size.min(name.len()).max(1)));
    windows.map(distance).min().unwrap_or(usize::MAX)
}

fn short<'k>(known: impl IntoIterator<Item = &'k str>) -> impl Iterator<Item = &'k str> {
    known.into_iter().filter(|name| name.len() <= MAX_LEN).take(MAX_NAMES)
}

fn sorted<'k>(near: impl Iterator<Item = (usize, &'k str)>, most: usize) -> Vec<&'k str> {
    let mut near: Vec<_> = near.collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(most).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        assert_eq!(nearest("chanels", &["channels", "exclude"]), Some("channels"));
        assert_eq!(nearest("Path", &["path"]), Some("path"));
        assert_eq!(nearest("speed", &["path", "level"]), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn patterns_are_compared_by_what_stands_for_itself() {
        let known = ["CAM_RFC", "POSE", "SLAM_POSE", "BROOM_L"];
        let near = |pattern| nearest_to_pattern(pattern, known, 3);
        assert_eq!(near("SLAM_POS"), ["SLAM_POSE"]);
        assert_eq!(near("CAN_*"), ["CAM_RFC"]);
        assert_eq!(near("BROM_{L,R}"), ["BROOM_L"]);
        assert_eq!(near("re:cam_[0-9]+"), ["CAM_RFC"]);
        assert!(near("*").is_empty() && near("VELODYNE*").is_empty());
    }

    #[test]
    fn names_that_nobody_types_cost_nothing() {
        let long = "x".repeat(1 << 20);
        assert!(nearest_of("x", [long.as_str()], 3).is_empty());
    }
}
