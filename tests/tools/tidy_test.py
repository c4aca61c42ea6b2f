#!/usr/bin/env python3
"""scripts/check/cpp_code.py against classes counted by hand, and the budgets of scripts/tidy.py."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import tidy  # noqa: E402
from check import cpp_code  # noqa: E402

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
