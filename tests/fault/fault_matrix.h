// The matrix of faults of a weight update: who fails, how, when, and how the bytes travel.
#ifndef TANDEM_TESTS_FAULT_FAULT_MATRIX_H_
#define TANDEM_TESTS_FAULT_FAULT_MATRIX_H_

#include <ostream>
#include <string>
#include <vector>

namespace tandem::testing {

enum class Role { kLeader, kOtherRank, kRollout, kDriver };
enum class Fault { kKilled, kStopped, kCut, kDelayed, kLossy };
// The phase in which the first rollout is when the fault comes; all of them are of an update, but
// idle is before one.
enum class Phase { kBegin, kTransfer, kVerify, kCommit, kIdle };

inline constexpr const char* kRoleNames[] = {"leader", "other_rank", "rollout", "driver"};
inline constexpr const char* kFaultNames[] = {"killed", "stopped", "cut", "delayed", "lossy"};
inline constexpr const char* kPhaseNames[] = {"begin", "transfer", "verify", "commit", "idle"};

struct Cell {
  Role role;
  Fault fault;
  Phase phase;
  std::string transport;
};

inline std::string Name(Role role) { return kRoleNames[static_cast<int>(role)]; }
inline std::string Name(Fault fault) { return kFaultNames[static_cast<int>(fault)]; }
inline std::string Name(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }
inline std::string Name(const Cell& cell) {
  return Name(cell.role) + "_" + Name(cell.fault) + "_" + Name(cell.phase) + "_" + cell.transport;
}

// For gtest, which shows bytes otherwise.
inline void PrintTo(const Cell& cell, std::ostream* out) { *out << Name(cell); }

// Everything for reshard and delta; for broadcast the transfer, in which alone it differs.
inline std::vector<Cell> AllCells() {
  std::vector<Cell> cells;
  for (const char* transport : {"reshard", "delta", "broadcast"}) {
    for (int role = 0; role < 4; ++role) {
      for (int fault = 0; fault < 5; ++fault) {
        for (int phase = 0; phase < 5; ++phase) {
          const Cell cell = {Role(role), Fault(fault), Phase(phase), transport};
          if (cell.transport == "broadcast" && cell.phase != Phase::kTransfer) continue;
          cells.push_back(cell);
        }
      }
    }
  }
  return cells;
}

// As few as have every pair: of fault and phase (so 25), fault and role, phase and role, and each
// of the three with both transports.
inline std::vector<Cell> PairwiseCells() {
  std::vector<Cell> cells;
  for (int fault = 0; fault < 5; ++fault) {
    for (int phase = 0; phase < 5; ++phase) {
      const bool delta = (fault / 2 + phase) % 2 == 1;
      cells.push_back(
          {Role((fault + phase) % 4), Fault(fault), Phase(phase), delta ? "delta" : "reshard"});
    }
  }
  return cells;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_FAULT_MATRIX_H_
