#include "carried_state.h"

#include "report.h"

namespace gf_emulator {

void CarriedState::read(const ModuleMemory::Object& object, std::size_t word, unsigned bytes, const Party& reader) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Reads& reads = reads_[&object];
    if (reads.bytes.empty()) {
        reads.bytes.assign(object.bytes / 4 + 1, 0);
        reads.reader.assign(object.bytes / 4 + 1, 0);
    }
    reads.bytes[word] |= std::uint8_t(bytes);
    if (reads.reader[word]) return;
    std::size_t number = 0;
    while (number < reads.readers.size() && reads.readers[number].site != reader.site) number++;
    if (number == reads.readers.size() && number < kept_readers) reads.readers.push_back(reader);
    reads.reader[word] = std::uint8_t(number < kept_readers ? number + 1 : kept_readers);
}

void CarriedState::report(const ModuleMemory& module) const {
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
}

}  // namespace gf_emulator
