// SPDX-License-Identifier: MIT
// Prints the option table; see help.h.
#include "help.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "option_table.h"

namespace ddprun {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kHelpColumn = 34;

constexpr std::array kHeadings = {
    std::pair{OptionGroup::nodes, "how many, and where they meet"},
    std::pair{OptionGroup::program, "what is started"},
    std::pair{OptionGroup::logs, "where output goes"},
    std::pair{OptionGroup::stop, "how it ends"},
    std::pair{OptionGroup::about, "instead of a run"},
};

std::string syntax_of(const Option& option) {
  std::string text = option.short_name ? fmt::format("  -{}, ", option.short_name) : "      ";
  text += fmt::format("--{}", option.name);
  if (!option.is_flag()) text += fmt::format(" {}", option.value_name);
  return text;
}

std::string help_of(const Option& option) {
  std::string text(option.help);
  if (!option.is_flag() && !option.default_text.empty())
    text += fmt::format(" (default: {})", option.default_text);
  return text;
}

/// `left`, then `text` in the column of the help, broken between words.
std::string entry(std::string_view left, std::string_view text) {
  std::string out(left);
  std::size_t column = left.size();
  if (column >= kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kHelpColumn - column, ' ');
  column = kHelpColumn;
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (column > kHelpColumn && column + 1 + word.size() > kColumns) {
      out += '\n';
      out.append(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + '\n';
}

}  // namespace

std::string help_text() {
  std::string text =
      "usage: ddprun [options] program [arguments]\n"
      "Starts N copies of a program, tells each its rank, and ends them together.\n"
      "A program that ends in .py runs under $PYTHON_EXEC or python3; what follows it is its "
      "own.\n";
  for (const auto& [group, heading] : kHeadings) {
    text += fmt::format("\n{}: {}\n", name_of(group), heading);
    for (const Option& option : option_table())
      if (option.group == group) text += entry(syntax_of(option), help_of(option));
  }
  text +=
      "\nNames may be written with dashes. A value comes from the command line, else from "
      "PET_<NAME>"
      "\n(PET_NPROC_PER_NODE=4, PET_MODULE=1), else it is the default.\n";
  return text;
}

std::string version_text() { return "ddprun " DDPRUN_VERSION "\n"; }

}  // namespace ddprun
