// SPDX-License-Identifier: MIT
// What the environment asks of a double: numbers, and plans of faults written as
// "key=value,key=value;key=value,...".
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::doubles {

inline int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

using Rule = std::map<std::string, std::string>;

inline std::vector<Rule> parse_rules(std::string_view text) {
  std::vector<Rule> rules;
  for (const std::string& part : split(text, ';')) {
    Rule& rule = rules.emplace_back();
    for (const std::string& word : split(part, ',')) {
      const auto equals = word.find('=');
      rule[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
  }
  return rules;
}

inline std::string value_of(const Rule& rule, const std::string& key,
                            const std::string& otherwise) {
  const auto found = rule.find(key);
  return found == rule.end() ? otherwise : found->second;
}

}  // namespace ddprun::doubles
