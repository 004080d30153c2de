#include "common/http/connection_table.h"

#include <utility>

namespace tandem::http {

void ConnectionTable::Enter(Connection& connection, Phase phase) {
  connection.phase = phase;
  std::list<Connection*>& list = phases_[Index(phase)];
  connection.in_phase = list.insert(list.end(), &connection);
  Client& client = clients_[connection.client];
  if (phase == Phase::kReading) {
    connection.in_client = client.reading.insert(client.reading.end(), &connection);
  } else if (phase == Phase::kServing && connection.slow) {
    ++num_slow_;
    ++client.num_slow;
  }
}

void ConnectionTable::Leave(Connection& connection) {
  phases_[Index(connection.phase)].erase(connection.in_phase);
  Client& client = clients_[connection.client];
  if (connection.phase == Phase::kReading) {
    client.reading.erase(connection.in_client);
  } else if (connection.phase == Phase::kServing && connection.slow) {
    --num_slow_;
    --client.num_slow;
  }
}

void ConnectionTable::Add(Pointer connection) {
  Connection& added = *connection;
  all_.emplace(&added, std::move(connection));
  ++clients_[added.client].num_connections;
  Enter(added, Phase::kReading);
}

void ConnectionTable::SetPhase(Connection& connection, Phase phase) {
  Leave(connection);
  Enter(connection, phase);
}

void ConnectionTable::Remove(Connection& connection) {
  Leave(connection);
  const auto client = clients_.find(connection.client);
  if (--client->second.num_connections == 0) clients_.erase(client);
  all_.erase(&connection);
}

int ConnectionTable::CountReading(const std::string& client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? 0 : static_cast<int>(found->second.reading.size());
}

int ConnectionTable::CountSlow(const std::string& client) const {
  const auto found = clients_.find(client);
  return found == clients_.end() ? 0 : found->second.num_slow;
}

ConnectionTable::Pointer ConnectionTable::Victim() const {
  for (const Phase phase : {Phase::kLingering, Phase::kReading, Phase::kWriting}) {
    const std::list<Connection*>& list = phases_[Index(phase)];
    if (!list.empty()) return all_.at(list.front());
  }
  return nullptr;
}

ConnectionTable::Pointer ConnectionTable::OldestReading(const std::string& client) const {
  const auto found = clients_.find(client);
  if (found == clients_.end() || found->second.reading.empty()) return nullptr;
  return all_.at(found->second.reading.front());
}

ConnectionTable::Pointer ConnectionTable::Largest() const {
  const Connection* largest = nullptr;
  for (const Phase phase : {Phase::kReading, Phase::kWriting}) {
    for (const Connection* one : phases_[Index(phase)]) {
      if (largest == nullptr || one->counted_bytes > largest->counted_bytes) largest = one;
    }
  }
  return largest == nullptr ? nullptr : all_.at(const_cast<Connection*>(largest));
}

}  // namespace tandem::http
