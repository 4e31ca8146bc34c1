//! Which of the names there are a misspelled one was most likely meant to be. Words no message.

/// More names than these are not compared: a damaged log can invent any number.
const MOST_NAMES: usize = 4096;

/// Names longer than this were typed by nobody.
const LONGEST: usize = 200;

/// The one of `known` that `word` is most likely meant to be, if one is near.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    nearest_of(word, known.iter().copied(), 1).pop()
}

/// At most `most` of `known` that are near `word`, the nearest first.
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

/// At most `most` of `known` that a glob (or `re:` and a regular expression) nearly matches: those that
/// hold something near the longest part of it that stands for itself.
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
    // A part of a name is soon like a part of another: only the best are worth a word.
    let best = near.iter().map(|(far, _)| *far).min();
    sorted(near.into_iter().filter(|(far, _)| Some(*far) == best), most)
}

/// How far the nearest stretch of `name` that is about as long as `literal` is from it.
fn nearest_window(literal: &[char], name: &str) -> usize {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let distance = |part: &[char]| strsim::generic_damerau_levenshtein(literal, part);
    let sizes = literal.len() - 1..=literal.len() + 1;
    let windows = sizes.flat_map(|size| name.windows(size.min(name.len()).max(1)));
    windows.map(distance).min().unwrap_or(usize::MAX)
}

fn short<'k>(known: impl IntoIterator<Item = &'k str>) -> impl Iterator<Item = &'k str> {
    known.into_iter().filter(|name| name.len() <= LONGEST).take(MOST_NAMES)
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
