// SPDX-License-Identifier: MIT
// Command line to LaunchConfig: the option table, applied with precedence; see launch.h.
#include <ddprun/error.h>
#include <ddprun/launch.h>

#include <optional>

#include <fmt/core.h>

#include "argv.h"
#include "base/env.h"
#include "config_check.h"

namespace ddprun {
namespace {

std::optional<OptionValue> from_variable(const std::string& name) {
  auto text = get_env(name.c_str());
  if (!text) return std::nullopt;
  return OptionValue{name, std::move(*text)};
}

/// Command line, else PET_* variable, else second variable. The last of several given wins.
std::optional<OptionValue> value_of(const Option& option, const Argv& argv) {
  std::optional<OptionValue> value;
  for (const GivenOption& given : argv.options)
    if (given.option == &option) value = given.value;
  if (!value && option.group != OptionGroup::about) value = from_variable(option.variable());
  if (!value && !option.second_variable.empty())
    value = from_variable(std::string(option.second_variable));
  return value;
}

void refuse_absent_variables() {
  for (const AbsentOption& absent : absent_options())
    if (get_env(absent.variable().c_str()))
      throw UsageError(fmt::format("[cli] {} is set, but this version has no --{}; unset it",
                                   absent.variable(), absent.name));
}

}  // namespace

CommandLine parse_command_line(std::span<const char* const> words) {
  Argv argv = split_words(words);
  CommandLine line;
  line.config.program.command = std::move(argv.command);
  for (const GivenOption& given : argv.options)
    if (given.option->group == OptionGroup::about) given.option->apply(line, given.value);
  if (line.text) return line;
  for (const Option& option : option_table()) {
    const auto value = value_of(option, argv);
    if (!value) continue;
    if (value->text.empty())
      throw UsageError(fmt::format("[cli] {} has an empty value", value->label()));
    option.apply(line, *value);
  }
  refuse_absent_variables();
  check_config(line.config);
  return line;
}

}  // namespace ddprun
