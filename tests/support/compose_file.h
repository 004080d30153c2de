// The part of a compose file that matters to processes: what is started, with which arguments,
// volumes and environment, after whom, and how its health is asked for.
#ifndef TANDEM_TESTS_SUPPORT_COMPOSE_FILE_H_
#define TANDEM_TESTS_SUPPORT_COMPOSE_FILE_H_

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace tandem::testing {

struct ComposeVolume {
  std::string source;  // as it is written: a path, a variable, or the name of a volume
  std::string target;
};

struct ComposeService {
  std::string name;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::vector<ComposeVolume> volumes;
  std::vector<std::string> health_command;  // empty: none
  std::vector<std::string> starts_after_health_of;
};

// A key of a mapping, or of what it merges with `<<`, which yaml-cpp leaves as it is.
inline YAML::Node MergedValue(const YAML::Node& mapping, const std::string& key) {
  if (const YAML::Node own = mapping[key]; own.IsDefined()) return own;
  if (const YAML::Node merged = mapping["<<"]; merged.IsDefined()) return MergedValue(merged, key);
  return YAML::Node(YAML::NodeType::Undefined);
}

// The services of a profile, in the order of the file.
inline std::vector<ComposeService> ReadComposeFile(const std::string& path,
                                                   const std::string& profile) {
  std::vector<ComposeService> services;
  for (const auto& entry : YAML::LoadFile(path)["services"]) {
    const YAML::Node& node = entry.second;
    const auto profiles = MergedValue(node, "profiles").as<std::vector<std::string>>();
    if (std::find(profiles.begin(), profiles.end(), profile) == profiles.end()) continue;
    ComposeService service;
    service.name = entry.first.as<std::string>();
    service.command = MergedValue(node, "command").as<std::vector<std::string>>();
    if (const YAML::Node environment = MergedValue(node, "environment"); environment) {
      service.environment = environment.as<std::map<std::string, std::string>>();
    }
    for (const auto& volume : MergedValue(node, "volumes")) {
      std::string text = volume.as<std::string>();
      if (const size_t mode = text.rfind(":ro"); mode == text.size() - 3) text.resize(mode);
      const size_t colon = text.rfind(':');
      service.volumes.push_back({text.substr(0, colon), text.substr(colon + 1)});
    }
    if (const YAML::Node health = MergedValue(node, "healthcheck"); health) {
      if (const YAML::Node test = MergedValue(health, "test"); test) {
        service.health_command = test.as<std::vector<std::string>>();
        service.health_command.erase(service.health_command.begin());  // CMD
      }
    }
    for (const auto& other : MergedValue(node, "depends_on")) {
      service.starts_after_health_of.push_back(other.first.as<std::string>());
    }
    services.push_back(std::move(service));
  }
  return services;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_COMPOSE_FILE_H_
