#!/usr/bin/env python3
"""scripts/check/cpp_code.py against classes counted by hand, and the budgets of scripts/tidy.py."""

import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import tidy  # noqa: E402
from check import cpp_code, python_code  # noqa: E402

SOURCE = r"""
enum class Kind : std::uint8_t { a, b };
template <class T, typename U = std::vector<T>> T make(T value) { return value; }
struct Plain { int x = f(1); std::function<void(int)> call; int y{g(2)}; void (*old)(int); };
class Box final : public Base<int> {
 public:
  explicit Box(int a, std::size_t n = (1 << 4)) : a_{a}, b_(n), c_{{1, 2}, 3} { reset(); }  // 1
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;
  ~Box() = default;
  [[nodiscard]] int size() const noexcept { return a_ < 2 ? 1 : 2; }                        // 2
  int size(int) const;                                                                      // 3
  template <typename Action>
  void each(const Action& action) const { if (a_) { action("{;"); } }                       // 4
  bool operator()(int a) const { return a == '{'; }                                         // 5
  bool operator<(const Box& other) const;                                                   // 6
  auto operator<=>(const Box&) const = default;
  explicit operator bool() const { return true; }                                           // 7
  static std::map<int, std::vector<std::pair<int, int>>> table();                           // 8
  virtual void run(int a, std::function<int(int)> f = [](int b) { return b; }) = 0;         // 9
  auto end() const -> std::vector<int>::iterator;                                           // 10
  requires (sizeof(int) == 4) void checked();                                               // 11
  friend bool operator==(const Box&, const Box&) { return true; }
  using Call = std::function<void(int)>;
  static_assert(sizeof(int) == 4);

 private:
  struct Inner { int of() const { return 1; } int more(); };
  enum class Step { one, two };
#define PAIR(a) (a)
  Inner inner() { return {}; }                                                              // 12
  alignas(64) std::array<int, (3 > 2)> values_{};
  std::function<bool(int)> call_ = [](int) { return true; };
  int a_ = 1'000, b_ = size(2), c_[2] = {f(1), g(2)};
};
class Declared;
"""


class Classes(unittest.TestCase):
    def test_every_kind_of_member(self):
        code = cpp_code.without_comments_and_strings(SOURCE)
        counts = {name: methods for _, _, name, methods in cpp_code.classes(code)}
        self.assertEqual(counts, {"Plain": 0, "Box": 12, "Inner": 2})

    def test_lines(self):
        found = list(cpp_code.classes("\n\nclass A {\n  int a();\n};\n"))
        self.assertEqual(found, [(3, 3, "A", 1)])

    def test_a_parameter_of_a_template_is_no_class(self):
        found = list(cpp_code.classes("template <class T> requires C<T> struct A { T t; };"))
        self.assertEqual(found, [(1, 1, "A", 0)])


class Declarations(unittest.TestCase):
    """What a header declares is defined in its own folder."""

    def found(self, **files):
        with tempfile.TemporaryDirectory() as top:
            names = [name.replace("__", "/").replace("_cpp", ".cpp").replace("_h", ".h")
                     for name in files]
            for name, text in zip(names, files.values()):
                path = pathlib.Path(top) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("namespace hyb {\n" + text + "\n}\n")
            with unittest.mock.patch.object(tidy, "TOP", pathlib.Path(top)):
                return list(tidy.check_declarations(names))

    def test_a_definition_elsewhere_is_found(self):
        found = self.found(app__a__x_h="int f(int a = 1);",
                           app__b__x_cpp="int f(int b) { return b; }")
        self.assertEqual([row[:3] for row in found], [("declared", "app/a/x.h", 2)])
        self.assertIn("app/b", found[0][3])

    def test_an_overload_here_hides_none_elsewhere(self):
        here = "int f(std::map<int, int> a) { return 1; }"
        found = self.found(app__a__x_h="int f(int a);\n" + here.replace(" { return 1; }", ";"),
                           app__a__x_cpp=here, app__b__x_cpp="int f(int b) { return b; }")
        self.assertEqual(len(found), 1)

    def test_what_is_here_inline_nameless_or_another_namespace_s_is_fine(self):
        self.assertEqual(self.found(
            app__a__x_h="int f(int a);\ninline int g() { return 2; }\nint h();",
            app__a__x_cpp="int f(int a) { return a; }\nint h() { return 1; }",
            app__b__x_cpp="namespace {\nint f(long a) { return a; }\n}\n"
                          "namespace inner {\nint h() { return 2; }\n}"), [])

    def test_a_nameless_one_of_the_same_name_is_found(self):
        for here, there in (("int f(int a);", "int f(int b) { return b; }"),
                            ("struct Row { int a; };", "struct Row { long a; };"),
                            ("constexpr int rows_max = 1;", "constexpr long rows_max = 2;")):
            nameless = "namespace {\n" + there + "\n}"
            found = self.found(app__a__x_h=here, app__b__y_cpp=nameless)
            self.assertEqual([row[:3] for row in found], [("hidden", "app/a/x.h", 2)])
            self.assertEqual(self.found(app__a__x_h=here, core__y_cpp=nameless), [])
            self.assertEqual(len(self.found(core__x_h=here, app__y_cpp=nameless)), 1)


class Prose(unittest.TestCase):
    def test_tables_code_and_headings_are_not_counted(self):
        text = ("# a b c\n\none two\nthree\n\n    code of four words\n\n| a | b |\n|---|---|\n\n"
                "- four five\n  six\n- seven\n\n```\nmore code\n```\n")
        self.assertEqual([len(block.split()) for block in tidy.prose_of(text)], [3, 4, 2])


class Python(unittest.TestCase):
    def found(self, **texts):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "scripts/one"
            folder.mkdir(parents=True)
            for file, text in texts.items():
                (folder / f"{file}.py").write_text(text)
            paths = [f"scripts/one/{file}.py" for file in texts]
            return [text for *_, text in python_code.findings(pathlib.Path(name), paths)]

    def test_imports_of_what_is_there(self):
        used = "from one import a\nfrom one.a import x\na.f(x)\n"
        self.assertEqual(self.found(a="x = 1\n", b=used), [])
        gone = "from one.a import x\nfrom one import c\nc, x\n"
        self.assertEqual(self.found(a="y = 1\n", b=gone), ["scripts/ has no one.a.x",
                                                            "scripts/ has no one.c"])

    def test_names(self):
        self.assertEqual(self.found(a="import sys\ndef f(): return g\n"),
                         ["sys is imported and not used", "g is not defined", "nothing calls f"])


class Budgets(unittest.TestCase):
    def judged(self, now, written):
        found = [("file", "a.cpp", now, "long", now)] if now else []
        return list(tidy.judge(found, {("file", "a.cpp"): written} if written else {}))

    def test_an_exception_states_the_figure_of_today(self):
        self.assertEqual(self.judged(700, 700), [])
        self.assertIn("its exception says 699", self.judged(700, 699)[0])
        self.assertIn("fell to 700", self.judged(700, 701)[0])
        self.assertIn("no longer needed", self.judged(None, 700)[0])
        self.assertEqual(self.judged(700, None), ["a.cpp:700: file: long"])

    def test_rules_without_a_figure_have_exceptions_without_one(self):
        found = [("mirror", "a.cpp", 1, "tests nothing")]
        self.assertEqual(list(tidy.judge(found, {("mirror", "a.cpp"): None})), [])
        self.assertEqual(len(list(tidy.judge(found, {("mirror", "a.cpp"): 3}))), 1)

    def test_lower_never_raises(self):
        text = "mirror a.cpp  # why\nfile a.cpp 700  # why\nfile b.cpp 800\nclass c.h:C 50  # why\n"
        found = [("file", "a.cpp", 1, "", 650), ("class", "c.h:C", 1, "", 51)]
        self.assertEqual("".join(tidy.lowered(text, found)),
                         "mirror a.cpp  # why\nfile a.cpp 650  # why\nclass c.h:C 50  # why\n")


if __name__ == "__main__":
    unittest.main()
