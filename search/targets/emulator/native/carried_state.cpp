#include "carried_state.h"

#include "device_heap.h"
#include "report.h"

namespace gf_emulator {

void CarriedState::read(const ModuleMemory::Object& object, std::size_t word, unsigned bytes, const Party& reader) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Reads& reads = reads_[&object];
    const bool plain = reader.action == Action::read || reader.action == Action::matrix_read;
    if (reads.bytes.empty()) {
        reads.counters.assign(object.bytes / 4 + 1, 0);
        reads.bytes.assign(object.bytes / 4 + 1, 0);
        reads.reader.assign(object.bytes / 4 + 1, 0);
    }
    (plain ? reads.bytes : reads.counters)[word] |= std::uint8_t(bytes);
    if (reads.reader[word]) return;
    std::size_t number = 0;
    while (number < reads.readers.size() && reads.readers[number].site != reader.site) number++;
    if (number == reads.readers.size() && number < kept_readers) reads.readers.push_back(reader);
    reads.reader[word] = std::uint8_t(number < kept_readers ? number + 1 : kept_readers);
}

bool CarriedState::report(const ModuleMemory& module) const {
    for (const auto& [object, reads] : reads_) {
        std::vector<bool> reported(reads.readers.size() + 1);
        for (std::size_t byte = 0; byte < object->bytes; byte++) {
            const std::size_t word = byte / 4;
            const bool changed = std::uint8_t(object->begin[byte]) != module.initial(*object, byte);
            if (!changed || !(reads.bytes[word] >> byte % 4 & 1) || reported[reads.reader[word]]) continue;
            reported[reads.reader[word]] = true;
            findings().add({"uninitialised", "device:" + object->name, long(byte), 1,
                            reads.readers[reads.reader[word] - 1u], {}, carried_from_call_to_call});
        }
    }
    return report_counters(module);
}

bool CarriedState::report_counters(const ModuleMemory& module) const {
    std::size_t counter_bytes = 0, other_bytes = 0, offset = 0;
    const ModuleMemory::Object* counter = nullptr;
    for (const ModuleMemory::Object& object : module.objects()) {
        if (object.kind != ModuleMemory::Kind::device) continue;
        const auto entry = reads_.find(&object);
        for (std::size_t byte = 0; byte < object.bytes; byte++) {
            if (std::uint8_t(object.begin[byte]) == module.initial(object, byte)) continue;
            if (entry == reads_.end() || !(entry->second.counters[byte / 4] >> byte % 4 & 1)) {
                other_bytes++;
                continue;
            }
            if (!counter) counter = &object, offset = byte;
            counter_bytes++;
        }
    }
    // A counter may hold the address of a piece of the heap, which stays as long as the module.
    const bool keeps_more = other_bytes || device_heap().is_in_use() || counter_bytes > most_counter_bytes;
    const bool changed = counter || other_bytes;
    if (!counter || !keeps_more) return changed;
    const Reads& reads = reads_.at(counter);
    findings().add({"carried_state", "device:" + counter->name, long(offset), 1,
                    reads.readers[reads.reader[offset / 4] - 1u], {}, ""});
    return changed;
}

}  // namespace gf_emulator
