// The TCP ports that a process listens on, as a port scanner would find them.
#ifndef TANDEM_TESTS_SUPPORT_LISTENING_PORTS_H_
#define TANDEM_TESTS_SUPPORT_LISTENING_PORTS_H_

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace tandem::testing {

inline std::set<int> ListeningPorts(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code error;
  const std::string proc = "/proc/" + std::to_string(pid);
  for (std::filesystem::directory_iterator it(proc + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(it->path(), gone).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(proc + table);
    std::string line;
    std::getline(file, line);  // names of the columns
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
          timeout >> inode;
      // Listening sockets come first; of others, there are tens of thousands after an attack.
      if (state != "0A") break;
      if (inodes.count(inode) == 0) continue;
      ports.insert(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_LISTENING_PORTS_H_
