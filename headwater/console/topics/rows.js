// Rows of a topic, one line each. Only those in sight are in the page, so that thousands cost what a few do.
// All values come as texts: no number passes through JavaScript, which would round it.
const HEIGHT = 33;
const AROUND = 12;
const TOKENS = /("(?:[^"\\]|\\.)*"?)(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b/g;

const coloured = (text) => {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS)) {
    if (found.index > at) parts.push({ t: text.slice(at, found.index) });
    const kind = found[1] !== undefined ? (found[2] !== undefined ? "json-key" : "json-text") : found[3] !== undefined ? "json-number" : "json-literal";
    parts.push({ c: kind, t: found[1] ?? found[3] ?? found[4] });
    if (found[2]) parts.push({ t: found[2] });
    at = found.index + found[0].length;
  }
  if (at < text.length) parts.push({ t: text.slice(at) });
  return parts;
};

const marked = (text, mark) => {
  const parts = [];
  const low = text.toLowerCase();
  const sought = mark.toLowerCase();
  let at = 0;
  for (let found = low.indexOf(sought); found >= 0; found = low.indexOf(sought, at)) {
    if (found > at) parts.push({ t: text.slice(at, found) });
    parts.push({ m: true, t: text.slice(found, found + sought.length) });
    at = found + sought.length;
  }
  if (at < text.length) parts.push({ t: text.slice(at) });
  return parts;
};

export default {
  template: `
    <div :class="['hw-rows', {keyed, timed, numbered, fit, dated, typed: shownColumns.length}]" role="table" :aria-label="label" :aria-rowcount="list.length">
      <div class="scroll" ref="scroll" tabindex="0" :style="{height: fit ? null : height}" @scroll.passive="see"
           @keydown.down.prevent="step(1)" @keydown.up.prevent="step(-1)" @keydown.esc="$emit('close')">
        <div class="r head" role="row">
          <span class="at" role="columnheader" title="UTC; days are named where they differ">Appended</span>
          <span v-if="timed" class="ev" role="columnheader">Event time</span>
          <span v-if="numbered" class="p" role="columnheader" title="Partition">Part.</span>
          <span class="o" role="columnheader">Offset</span>
          <span v-if="keyed" class="k" role="columnheader">Key</span>
          <span class="v" role="columnheader">Value</span>
          <span v-for="c in shownColumns" :key="c.name" :class="['c', c.size, {right: c.right}]" role="columnheader" :title="c.name">{{ c.name }}</span>
          <span v-if="headed" class="h" role="columnheader">Headers</span>
        </div>
        <div v-if="!list.length" class="none">{{ none }}</div>
        <div class="space" :style="{height: list.length * ${HEIGHT} + 'px'}">
          <div v-for="(row, n) in shown" :key="row.i" role="row" :aria-rowindex="first + n + 1" :data-row="row.i"
               :class="['r', {picked: row.i === picked, gap: row.gap, dead: row.t}]" :style="{top: (first + n) * ${HEIGHT} + 'px'}" @click="pick(row)">
            <span v-if="row.gap" class="gap-text" role="cell">{{ row.gap }}</span>
            <template v-else>
              <span class="at" role="cell" :title="row.at"><i v-if="row.at.slice(0, 10) !== today">{{ row.at.slice(5, 10) + " " }}</i>{{ row.at.slice(11) }}</span>
              <span v-if="timed" class="ev" role="cell" :title="row.ev"><i v-if="row.ev.slice(0, 10) !== today">{{ row.ev.slice(5, 10) + " " }}</i>{{ row.ev.slice(11) }}</span>
              <span v-if="numbered" class="p" role="cell">{{ row.p }}</span>
              <span class="o" role="cell"><a :href="row.href" @click.stop.prevent="pick(row)">{{ row.o }}</a></span>
              <span v-if="keyed" class="k" role="cell" :title="row.key">{{ row.key }}</span>
              <span class="v json" role="cell"><span v-if="row.t" class="pill plain">tombstone</span><template v-for="part in parts(row)"><mark v-if="part.m">{{ part.t }}</mark><span v-else :class="part.c">{{ part.t }}</span></template></span>
              <span v-for="(c, at) in row.t ? [] : shownColumns" :key="c.name" :class="['c', c.size, {right: c.right, none: row.cells?.[at] == null}]" role="cell" :title="row.cells?.[at]">{{ row.cells?.[at] ?? "–" }}</span>
              <span v-if="headed" class="h" role="cell" :title="row.ht">{{ row.h }}</span>
            </template>
          </div>
        </div>
      </div>
    </div>`,
  props: { rows: Array, turn: Number, label: String, none: String, keyed: Boolean, timed: Boolean, numbered: Boolean, fit: Boolean, height: String, mark: String, columns: Array },
  data() { return { list: [], top: 0, tall: 600, picked: "" }; },
  computed: {
    first() { return this.fit ? 0 : Math.max(0, Math.floor(this.top / HEIGHT) - AROUND); },
    today() { return this.list.find((row) => !row.gap)?.at.slice(0, 10); },
    dated() { return this.list.some((row) => !row.gap && (row.at.slice(0, 10) !== this.today || (this.timed && row.ev.slice(0, 10) !== this.today))); },
    shownColumns() { return this.mark ? [] : this.columns ?? []; },  // a text that was searched for is marked in the whole value
    headed() { return this.list.some((row) => row.h); },
    shown() { return this.fit ? this.list : this.list.slice(this.first, this.first + Math.ceil(this.tall / HEIGHT) + 2 * AROUND); },
  },
  // By its number: Vue sends props again, though they are the same, whenever something around the list changes.
  watch: { turn() { this.list = Object.freeze(this.rows); this.picked = ""; } },
  created() { this.list = Object.freeze(this.rows ?? []); },
  mounted() {
    this.watcher = new ResizeObserver(() => { this.tall = this.$refs.scroll?.clientHeight ?? this.tall; });  // it may have left the page
    this.watcher.observe(this.$refs.scroll);
  },
  unmounted() { this.watcher?.disconnect(); },
  methods: {
    see() { this.top = this.$refs.scroll?.scrollTop ?? this.top; },
    parts(row) {
      if (this.mark) return marked(row.value, this.mark);
      return row.form === "json" ? coloured(row.value) : [{ c: row.form === "hex" ? "json-literal" : "", t: row.value }];
    },
    pick(row) { if (!row.gap) { this.picked = row.i; this.$emit("pick", row.i); } },
    unpick() { this.picked = ""; },
    step(way) {
      const rows = this.list.filter((row) => !row.gap);
      const at = rows.findIndex((row) => row.i === this.picked);
      const next = rows[at < 0 ? 0 : at + way];
      if (!next) return;
      this.pick(next);
      const place = this.list.indexOf(next) * HEIGHT;
      const box = this.$refs.scroll;
      if (box && !this.fit && (place < box.scrollTop || place > box.scrollTop + this.tall - 3 * HEIGHT)) box.scrollTop = place - this.tall / 2;
    },
    // The newest rows come first. A list that is scrolled down keeps its position. Returns how many rows are kept.
    push(added, most) {
      const box = this.$refs.scroll;
      const reading = box?.scrollTop > HEIGHT;
      this.list = Object.freeze(added.concat(this.list).slice(0, most));
      if (reading) this.$nextTick(() => { box.scrollTop += added.length * HEIGHT; });
      return this.list.reduce((count, row) => count + (row.gap ? 0 : 1), 0);
    },
    empty() { this.list = Object.freeze([]); this.picked = ""; this.$refs.scroll?.scrollTo(0, 0); },
  },
};
