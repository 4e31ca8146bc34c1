//! Types that are declared in IDL.

use super::*;

/// What recorders put before each text.
fn front(name: &str) -> String {
    format!("{}\nIDL: {name}\n", "=".repeat(80))
}

fn channel_of(text: &str) -> Channel {
    let mut channel = channel(Generation::Ros2, "pkg/msg/Top", text);
    channel.schema.as_mut().unwrap().encoding = "ros2idl".into();
    channel
}

fn from_idl(text: &str) -> KnownType {
    codec(Generation::Ros2).embedded(&channel_of(text)).unwrap()
}

/// A declaration in the message language, as rosidl writes it in IDL.
fn struct_of(name: &str, text: &str) -> String {
    let (mut typedefs, mut members) = (String::new(), String::new());
    for line in text.lines() {
        let (word, name) = line.split_once(' ').unwrap();
        let (element, count) = word.split_once('[').unwrap_or((word, ""));
        let element = match element {
            "bool" => "boolean".to_owned(),
            "float32" => "float".to_owned(),
            "float64" => "double".to_owned(),
            of if of.starts_with('T') => format!("pkg::msg::{of}"),
            of => of.to_owned(),
        };
        let of = match count {
            "" => element,
            "]" => format!("sequence<{element}>"),
            _ => {
                let alias = format!("{}__3", element.replace("::", "__"));
                typedefs += &format!("typedef {element} {alias}[3];\n");
                alias
            }
        };
        members += &format!("@verbatim (language=\"comment\", text=\"a }};\")\n{of} {name};\n");
    }
    let (front, short) = (front(&format!("pkg/msg/{name}")), "module pkg { module msg {");
    format!("{front}{short}\n{typedefs}struct {name} {{\n{members}}};\n}}; }};\n")
}

/// The same types in IDL, in another order.
fn to_idl(text: &str) -> String {
    let separator = format!("{}\nMSG: pkg/", "=".repeat(80));
    let mut all = text.split(&separator);
    let first = struct_of("Top", all.next().unwrap());
    let others = all.map(|one| {
        let (name, text) = one.split_once('\n').unwrap();
        struct_of(name, text)
    });
    others.collect::<String>() + &first
}

proptest! {
    #[test]
    fn idl_declares_what_the_message_language_does(state in any::<u64>()) {
        let (generation, texts) = (Generation::Ros2, String::new());
        let mut made = Generator {
            state, generation, padding: 0, is_big: false, texts, names: 0,
        };
        let mut text = String::new();
        let members = made.members(0, &mut text);
        text += &made.texts;
        let mut body = Vec::new();
        made.values(&members, &mut body);
        let payload = [&[0, 1, 0, 0], &body[..]].concat();
        let of = from_idl(&to_idl(&text)).payload_type.unwrap();
        let (rows, bad) = decode(&of, std::slice::from_ref(&payload));
        prop_assert_eq!(bad, []);
        let expected = there_and_back(generation, &text, std::slice::from_ref(&payload));
        prop_assert_eq!(&rows[0].columns, &expected[0].columns);
        prop_assert_eq!(encode(generation, &rows[0]), [payload]);
    }

    #[test]
    fn any_text_is_idl_or_has_a_mistake(text in "[a-z{}<>;:@()\"'#/* \n\\[\\]]{0,80}") {
        if let Err(why) = from_idl(&text).payload_type {
            prop_assert!(!why.is_empty());
        }
    }
}

#[test]
fn idl_is_read_as_rosidl_writes_it() {
    let text = front("pkg/msg/Top")
        + "// generated\n#include \"std_msgs/msg/Header.idl\"\n\nmodule pkg {\n  module msg {\n\
           typedef double double__3[3];\ntypedef double__3 again;\nmodule Top_Constants {\n\
           const uint8 A = 1;\nconst string B = \"; }\\\"\" \"x\";\nconst char C = ';';\n};\n\
           @verbatim (language=\"comment\", text=\"(\" \"\\n\" \")\")\nstruct Top {\n\
           std_msgs::msg::Header header;\n@default (value=TRUE) boolean on;\n\
           /* at */ again at;\n@key @unit (value=\"m/s\")\nsequence<float, 3> values;\n\
           sequence<string<5>> names;\nunsigned long long n[2];\n\
           octet a, b;\nlong c; long long d; unsigned short e; unsigned long f; short g;\n\
           char h; ::pkg::msg::Near i;\n};\nstruct Near { uint8 x; };\n};\n};\n"
        + &front("std_msgs/msg/Header")
        + "module std_msgs { module msg { struct Header {\n\
           builtin_interfaces::msg::Time stamp; string frame_id; }; }; };\n";
    let in_messages = "std_msgs/msg/Header header\nbool on\nfloat64[3] at\nfloat32[<=3] values\n\
        string<=5[] names\nuint64[2] n\nbyte a\nbyte b\nint32 c\nint64 d\nuint16 e\nuint32 f\n\
        int16 g\nchar h\npkg/msg/Near i\n";
    let known = from_idl(&text);
    assert!(known.message_type.text.starts_with(in_messages), "{}", known.message_type.text);
    let again = codec(Generation::Ros2).adopt(&known.message_type, &Schema::empty()).unwrap();
    assert_eq!(again.schema(), known.payload_type.unwrap().schema());
}

#[test]
fn an_empty_type_of_idl_is_that_of_a_message_without_members() {
    let text = "module pkg { module msg { struct Top {\n\
                uint8 structure_needs_at_least_one_member; }; }; };";
    let expected = usable(Generation::Ros2, "# nothing\nuint8 X=1\n");
    assert_eq!(from_idl(text).payload_type.unwrap().schema(), expected.schema());
}

#[test]
fn idl_says_why_it_cannot_be_used() {
    let top =
        |members: &str| format!("module pkg {{ module msg {{ struct Top {{{members}}};}};}};");
    let deep = "module a {".repeat(9);
    let long = format!("struct {} {{}};", "a".repeat(300));
    let many = top(&"long a;".repeat(20_001));
    for (text, why) in [
        (&*top("wstring a;"), "wstring"),
        (&*top("wchar a;"), "`wchar` is not declared"),
        (&*top("float64 a;"), "expected a type, found `float64`"),
        (&*top("time a;"), "expected a type, found `time`"),
        (&*top("long double a;"), "expected `;`"),
        (&*top("long a[2][3];"), "expected `;`"),
        (&*top("sequence<sequence<long>> a;"), "`sequence`"),
        (&*top("sequence<long> a[2];"), "arrays and sequences of these"),
        (&*top("@optional long a;"), "@optional"),
        (&*top("@a(long a;"), "annotation is not closed"),
        (&*top("a::b::C c;"), "`a/b/C` is not declared"),
        (&*top("long a[N];"), "expected a number, found `N`"),
        (&*top("Top a;"), "holds itself"),
        (&*top("long a; long a;"), "two fields"),
        ("module pkg { enum Top { A }; };", "found `enum`"),
        ("module pkg { struct Other { long a; }; };", "does not declare `pkg/msg/Top`"),
        ("module pkg { module msg { struct Top : Base {}; }; };", "expected `{`"),
        ("module pkg { module msg { struct Top { long a;", "expected a type, found the end"),
        ("/* module", "comment is not closed"),
        ("const string A = \"x", "text is not closed"),
        (" \n", "does not declare"),
        (&deep, "modules nest deeper"),
        (&long, "a name of more than"),
        (&many, "more than 20000"),
    ] {
        let found = from_idl(text).payload_type.unwrap_err();
        assert!(found.contains(why), "{text:.200}: {found}");
    }
}
