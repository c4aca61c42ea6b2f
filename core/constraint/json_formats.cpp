#include "core/constraint/json_formats.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace hyb {
namespace {

using FormatTable = std::vector<std::pair<std::string_view, std::string>>;

FormatTable format_table() {
  const std::string date =
      "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8]))|([1-9][0-9](0[48]|[2468][048]|[13579][26])|"
      "([2468][048]|[13579][26])00)-02-29)";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5]["
      "0-9])";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string ipv4 = byte + "(\\." + byte + "){3}";
  const std::string h = "[0-9A-Fa-f]{1,4}", g = "(" + h + ":)",
                    tail = "(" + h + ":" + h + "|" + ipv4 + ")";
  std::string ipv6 = g + "{6}" + tail + "|::" + g + "{5}" + tail;
  for (int before = 1; before <= 5; ++before) {
    const std::string n = std::to_string(before - 1), m = std::to_string(5 - before);
    ipv6 += "|(" + g + "{0," + n + "}" + h + ")?::" + g + "{" + m + "}" + tail;
  }
  ipv6 += "|(" + g + "{0,5}" + h + ")?::" + h + "|(" + g + "{0,6}" + h + ")?::";
  const std::string hex = "%[0-9A-Fa-f]{2}", pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|" + hex + ")";
  const std::string host = "([A-Za-z0-9._~!$&'()*+,;=-]|" + hex + ")*";
  const std::string user = "(([A-Za-z0-9._~!$&'()*+,;=:-]|" + hex + ")*@)?";
  const std::string path = "(/" + pchar + "*)*", rest = "([/?]|" + pchar + ")*";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(//" + user + host + "(:[0-9]*)?" + path +
                          "|/(" + pchar + "+" + path + ")?|" + pchar + "+" + path + ")(\\?" + rest +
                          ")?(#" + rest + ")?";
  const std::string clock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
  const std::string days = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)";
  return {{"date", date},
          {"time", time},
          {"date-time", date + "[tT]" + time},
          {"duration", "P(" + days + "(" + clock + ")?|" + clock + "|[0-9]+W)"},
          {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" +
                        label + "(\\." + label + ")*"},
          {"hostname", "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\." + label + "){0,3}"},
          {"ipv4", ipv4},
          {"ipv6", ipv6},
          {"uri", uri},
          {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"}};
}

}  // namespace

std::string_view regex_of_format(std::string_view format) {
  static const FormatTable table = format_table();
  const auto found = std::ranges::find(table, format, &FormatTable::value_type::first);
  return found == table.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace hyb
